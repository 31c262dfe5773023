#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The conformance suite on one backend: run.sh NAME, or run.sh /path/to/libcollrun_NAME.so for one that is not
# installed. run.sh tcp-sockets: no two ranks share memory (option local: tcp); run.sh tcp-hosts: the ranks are those
# of two hosts in turn, which are both this machine. Speaks TAP, one line per job with its number of cases, and ends with the totals. From the environment:
#   COLLRUN        the command under test (build/release/bin/collrun)
#   PREFIX         where include/ and lib/ are, if it is installed elsewhere
#   SCOPE          core (default): the operations, types and operators every build has; full: all of the API
#   JOBS           only jobs whose title matches this extended regular expression
#   TEAMS          the groups of the small sweeps, as in "w-2-0-1 w-0-1" (ranks 0 to 7)
#   WIDE=1         all roots and pairs in large groups too; counts past 2^31 (12 GiB of memory)
#   SEED           of the fuzzer and the pairwise choice
#   SEEDS          how many seeds the random programs run with, from SEED on (1)
#   STEPS          length of the fuzz programs (600)
#   FORMINGS       how often one name is used for a group (1000)
#   REQUESTS       how many are in flight at once (2000)
#   OPTIONS        options of the backend, as a YAML flow map
#   HOSTS=2        the ranks are those of two hosts in turn
#   GROUP_TIMEOUT  of one operation (10m)
#   JOB_TIMEOUT    of one job, in seconds (300; 900 in full scope)
#   CONFORM_SO     the workload, if it is built already
#   SANITIZE       flags to build it with, if collrun has been: -fsanitize=thread
#   FIRST=1        ends each job at its first failure
#   KEEP=1         keep the folder with job files and outputs
set -u
. "$(dirname "$0")/lib.sh"
[ "${1:-}" != nccl ] || BACKEND= exec "$here/devices.sh" # buffers on GPUs
[ "${1:-}" != hpu ] || exec "$here/hpu.sh"               # in memory of the pretend accelerator
backend=${1:?usage: run.sh BACKEND|BACKEND-sockets|BACKEND-hosts|/path/to/libcollrun_NAME.so}
whole=$backend
case $backend in
*/*) ;;
*-sockets) backend=${backend%-sockets} OPTIONS='{local: tcp}' ;;
*-hosts) backend=${backend%-hosts} HOSTS=2 ;;
esac
[ "$whole" = "$backend" ] || JOBS=${JOBS:-${CONFORM_JOBS:-}}
scope=${SCOPE:-core}
steps=${STEPS:-600}
group_timeout=${GROUP_TIMEOUT:-10m}
job_timeout=$(seconds 300 900)
own_folder conform

name=$backend
declare_backend=
if [[ $backend == */* ]]; then
    path=$(realpath "$backend") || exit 2
    name=$(basename "$path" .so)
    name=${name#libcollrun_}
    declare_backend="  $name: {path: $path${OPTIONS:+, options: $OPTIONS}}"
elif [ -n "${OPTIONS:-}" ]; then
    declare_backend="  $name: {options: $OPTIONS}"
fi

build_workload

# ---- jobs ----
identity="w-0 w-0-1 w-0-1-2 w-0-1-2-3 w-0-1-2-3-4 w-0-1-2-3-4-5 w-0-1-2-3-4-5-6 w-0-1-2-3-4-5-6-7"
permuted="w-5 w-1-0 w-4-0-2 w-3-1-0-2 w-7-2-5-0-3 w-5-4-3-2-1-0 w-6-1-4-0-2-5-3 w-2-7-0-5-1-6-4-3"
# The permuted ones have all sizes.
[ "$scope" = full ] || identity="w-0 w-0-1 w-0-1-2 w-0-1-2-3"
[ -z "${TEAMS:-}" ] || identity=$TEAMS permuted=$TEAMS
some="w-0-1 w-2-0-1 w-4-1-3-0-2 w-0-1-2-3-4-5-6-7"
overlapping="w-0-1-2-3-4-5-6-7 w-3-2-1-0 w-4-5-6-7 w-0-2-4-6 w-1-7 w-6-5 w-2-7-0-5-1-6-4-3 w-3 w-5-0-1"
mismatches="m-kind m-barrier m-dtype m-width m-op m-root m-count m-large m-zero m-scan m-scankind m-userop"
uneven_mismatches="m-allgatherv m-gatherv m-scatterv m-reduce_scatterv m-alltoallv"
message_mismatches="m-sendcount m-sendtype"
[ "$scope" != full ] || message_mismatches+=" m-anycount"

# ranks_of GROUP: the list that its name spells.
ranks_of() {
    case $1 in
    w-*) local list=${1#w-} && echo "[${list//-/, }]" ;;
    *) echo "[0, 1, 2]" ;;
    esac
}

# job COUNT TEAMS PARAMS: a job file on stdout. MIX: every third group is shm. CHECK: their check.
job() {
    local count=$1 teams=$2 params=$3 i=0 group
    echo "version: 1"
    echo "processes: {count: $count${HOSTS:+, map: cyclic}}"
    [ -z "${HOSTS:-}" ] || printf '%s\n' 'hosts: {nodes: [{name: near, transport: local}, {name: far, transport: {command: [env]}}]}' \
        'network: {interface: lo}'
    [ -z "$declare_backend" ] || printf 'backends:\n%s\n' "$declare_backend"
    echo "groups:"
    [[ " $teams " == *" world "* ]] || echo "  world: {ranks: all, backend: $name, timeout: $group_timeout}"
    for group in $teams; do
        local with=$name
        [ -z "${MIX:-}" ] || [ $((++i % 3)) -ne 0 ] || with=shm
        echo "  $group: {ranks: $(ranks_of "$group"), backend: $with, timeout: $group_timeout${CHECK:+, check: $CHECK}}"
    done
    job_end "$teams" "wide: $([ -n "${WIDE:-}" ] && echo true || echo false), dir: $tmp, $params"
}

# programs TITLE COUNT TEAMS PARAMS: random ones, for every seed.
programs() {
    local first=$seed title=$1
    shift
    for ((; seed < first + ${SEEDS:-1}; seed++)); do
        try "$title${SEEDS:+, seed $seed}" "$@"
    done
    seed=$first
}

# try TITLE COUNT TEAMS PARAMS
try() {
    job_chosen "$1" || return
    job_run "$1" "$2" < <(job "$2" "$3" "$4")
}

for n in 1 2 3 4 5 6 7 8; do
    world=w$(seq -f '-%g' -s '' 0 $((n - 1)))
    try "world of $n: special values, synchronisation, bad arguments" "$n" "$world" 'suite: "special sync arguments"'
done
try "every small operation, ranks in order" 8 "$identity" 'suite: sweep'
try "every small operation, ranks permuted" 8 "$permuted" 'suite: sweep'
try "operators of the workload" 8 "w-2 $some" 'suite: user_op'
try "batches of collectives" 8 "w-2 $some" 'suite: batch'
try "messages" 8 "w-0-1 w-1-0 w-2-0-1 w-0-1-2-3 w-7-2-5-0-3 w-2-7-0-5-1-6-4-3" 'suite: p2p'
try "what receives learn, probes, messages to oneself, threads" 8 "w-3 w-0-1 w-2-0-1 w-0-1-2-3 w-7-2-5-0-3" 'suite: envelope'
try "large operations, pairwise" 8 "$some" 'suite: large'
programs "random programs, one thread" 8 "$overlapping" "suite: fuzz, steps: $steps"
programs "random programs, three threads" 8 "$overlapping" "suite: fuzz, steps: $steps, threads: 3"
[ -n "${HOSTS:-}" ] || MIX=1 programs "random programs, mixed with shm" 8 "$overlapping" "suite: fuzz, steps: $steps, threads: 2"
[ "$name" != shm ] || CHECK=off try "calls that disagree" 3 "$mismatches $uneven_mismatches" 'suite: mismatch, early: true'
# With check: async a job whose program goes on after a MISMATCH ends.
CHECK=strict try "messages that disagree" 3 "$message_mismatches" 'suite: mismatch'
CHECK=strict try "calls that disagree, check: strict" 3 "$mismatches $uneven_mismatches" 'suite: mismatch'
CHECK=strict try "calls that disagree, check: strict, started" 3 "$mismatches $uneven_mismatches" 'suite: mismatch, async: true'
if [ -n "${WIDE:-}" ]; then
    try "counts past 2^31" 2 "w-0-1" 'suite: huge'
fi
if [ "$scope" = full ]; then
    try "operators of the workload, started" 8 "$some" 'suite: user_op, async: true'
    CHECK=strict try "operators of the workload and batches, check: strict" 8 "$some" 'suite: "user_op batch"'
    try "every small operation, started" 8 "$permuted" 'suite: sweep, async: true'
    try "requests" 8 "w-0-1 w-2-0-1 w-2-7-0-5-1-6-4-3" "suite: async, steps: ${REQUESTS:-2000}"
    programs "random programs, asynchronous" 8 "$overlapping" "suite: fuzz, steps: $steps, async: true"
    programs "random programs, asynchronous, three threads" 8 "$overlapping" "suite: fuzz, steps: $steps, threads: 3, async: true"
    CHECK=strict programs "random programs, check: strict" 8 "$overlapping" "suite: fuzz, steps: $steps, threads: 2, async: true"
    try "small operations in collrun_alloc" 8 "w-0-1 w-2-0-1 w-7-2-5-0-3" 'suite: sweep, alloc: true'
    try "large operations in collrun_alloc" 8 "$some" 'suite: large, alloc: true'
    try "groups made at run time" 5 "" "suite: dynamic, steps: ${FORMINGS:-1000}"
fi
finish "$whole, $scope"
