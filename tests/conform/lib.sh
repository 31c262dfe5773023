# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
#
# What run.sh, devices.sh and hpu.sh share: where things are, a folder for each run, the workload, one job, the totals.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../.." && pwd)
collrun=$(realpath "${COLLRUN:-$top/build/release/bin/collrun}") || exit 2
prefix=$(cd "$(dirname "$collrun")/.." && pwd)
seed=${SEED:-$((RANDOM * 32768 + RANDOM))}
started=$(date +%s)
number=0 failed=0 total=0 # jobs, jobs that failed, cases
child=
# What is Gloo's is no finding; that file explains it.
export TSAN_OPTIONS=${TSAN_OPTIONS:-}:suppressions=$top/tests/e2e/tsan.supp

# own_folder NAME: makes $tmp; at exit it is removed, and $child is killed.
own_folder() {
    tmp=$(mktemp -d "${TMPDIR:-/tmp}/$1.XXXXXX") || exit 2
    trap '[ -z "$child" ] || kill "$child" 2>/dev/null; [ -n "${KEEP:-}" ] || rm -rf "$tmp"' EXIT
    trap 'exit 143' TERM INT
}

# build_workload: builds $tmp/conform.so as a user would
build_workload() {
    local include=${PREFIX:-$prefix}/include
    [ -n "${PREFIX:-}" ] || [ -d "$include/collrun" ] || include=$top/engine/include
    if [ -n "${CONFORM_SO:-}" ]; then
        cp "$CONFORM_SO" "$tmp/conform.so"
    elif ! ${CC:-cc} -std=c11 -O2 -g -D_GNU_SOURCE -shared -fPIC -fvisibility=hidden -pthread ${SANITIZE:-} -I"$include" "$here"/*.c \
        -L"${PREFIX:-$prefix}/lib" -lcollrun -lm -o "$tmp/conform.so"; then
        echo "Bail out! the workload does not compile"
        exit 1
    fi
}

# no_message FILE: the stderr of a job is empty, but for a rank that was late: on a machine with fewer cores than ranks, one may be.
no_message() {
    ! grep -qv '^collrun: rank [0-9]* was last in ' "$1"
}

# seconds SHORT LONG: the limit of a job, unless JOB_TIMEOUT sets it.
seconds() {
    echo "${JOB_TIMEOUT:-$([ "${SCOPE:-core}" = full ] && echo "$2" || echo "$1")}"
}

# job_end TEAMS PARAMS: the end of a job file: the suite, and the limits of the job.
job_end() {
    echo "workloads:"
    echo "  - plugin: ./conform.so"
    echo "    params: {teams: \"$1\", scope: ${SCOPE:-core}, seed: $seed${FIRST:+, first: true}, $2}"
    echo "timeouts: {start: 60s, rendezvous: 60s, run: ${job_timeout}s, stall: off, grace: 2s}"
}

# job_chosen TITLE: whether JOBS selects the job, which then gets a number.
job_chosen() {
    [[ $1 =~ ${JOBS:-.} ]] && number=$((number + 1))
}

# job_run TITLE RANKS: runs the job file on stdin and prints the job's TAP line. The job passes when every rank has reported cases,
# the exit code is 0 and stderr has no message.
job_run() {
    local title=$1 code cases reports begin out=$tmp/$number.out err=$tmp/$number.err
    cat >"$tmp/$number.yaml"
    begin=$(date +%s%N)
    timeout -k 10 $((job_timeout + 30)) "$collrun" run "$tmp/$number.yaml" >"$out" 2>"$err" </dev/null &
    child=$!
    wait "$child"
    code=$?
    child=
    cases=$(sed -n 's/.*conform: rank [0-9]* cases \([0-9]*\).*/\1/p' "$out" | awk '{n += $1} END {print n + 0}')
    reports=$(grep -c 'conform: rank' "$out")
    total=$((total + cases))
    if [ $code -eq 0 ] && [ "$reports" -eq "$2" ] && [ "$cases" -gt 0 ] && no_message "$err"; then
        echo "ok $number - ${whole:-$name}: $title: $cases cases in $((($(date +%s%N) - begin) / 1000000)) ms"
        return
    fi
    failed=$((failed + 1))
    echo "not ok $number - ${whole:-$name}: $title: $cases cases, exit code $code, $reports of $2 ranks reported"
    { sed -n 's/.*FAIL rank [0-9]*: /FAIL /p; /crashed:/p' "$out" | awk '!seen[$0]++' | head -n "${LINES_SHOWN:-8}"
        head -n 12 "$err"; } | sed 's/^/#   /'
}

# finish WHAT: the plan line and the totals; false if a job failed.
finish() {
    echo "1..$number"
    echo "# $1: $total cases in $number jobs, $failed failed, $(($(date +%s) - started)) s, seed $seed"
    [ -z "${KEEP:-}" ] || echo "# kept: $tmp"
    [ "$failed" -eq 0 ]
}
