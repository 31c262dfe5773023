#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Allocations that fail, in the runner and in an agent: the command succeeds with all of its output, or memory is named as the cause.
# A sample of the allocations, of some 10 s times SAMPLE; ALL=1: every one, in about 20 minutes. allocation_failures.py judges.
# Then a limit of the runner's memory while ranks run that ignore signals: one line, exit code 125, and no rank is left.
. "$(dirname "$0")/lib.sh"
case $home in
*asan* | *tsan*)
    skip "allocations that fail" "the sanitizers have an allocator of their own"
    done_testing
    ;;
esac
cc -std=c11 -O2 -shared -fPIC "$here/failing_allocator.c" -o failing.so || {
    echo "Bail out! the allocator does not compile"
    exit 1
}
own_product
job small <<'END_OF_JOB'
version: 1
hosts: {defaults: {slots: 2}, nodes: [{name: here, transport: local}, {name: there, transport: {command: [env]}}]}
processes: {count: 4}
groups: {pair: {ranks: [0, 1], backend: shm}, odd: {ranks: [3, 1], backend: tcp}}
workloads: [{plugin: hello}]
env: {secrets: [SECRET_TOKEN]}
END_OF_JOB
export SECRET_TOKEN="not to be seen in a file"
# fails PROGRAM MODE TENTHS COMMAND...
fails() {
    local what="$1: an allocation of '${*:4}' fails" seconds output
    seconds=$(awk "BEGIN { print $3 * ${SAMPLE:-1} / 10 }")
    [ "$2" != libcrypto ] || what="$1: an allocation of libcrypto in '${*:4}' fails"
    [ "$2" != on ] || what="$1: all allocations of '${*:4}' fail from one on"
    [ -z "${ALL:-}" ] || seconds=0
    if output=$("$here/allocation_failures.py" "$home" "$tmp/failing.so" "$1" "$2" "$seconds" "${@:4}" 2>&1); then
        ok "$what: $(tail -n 1 <<<"$output")"
    else
        not_ok "$what" "$output"
    fi
}
fails collrun once 8 check small.yaml
fails collrun on 4 check small.yaml
fails collrun once 8 plan --json small.yaml
fails collrun on 4 plan --json small.yaml
fails collrun once 8 backends --json
fails collrun on 4 backends --json
fails collrun once 4 describe bench
fails collrun on 4 describe bench
fails collrun once 25 run small.yaml --run-dir "{dir}"
fails collrun on 15 run small.yaml --run-dir "{dir}"
fails collrun libcrypto 10 run small.yaml --run-dir "{dir}"
fails collrun-agent once 15 run small.yaml --run-dir "{dir}"
fails collrun-agent on 5 run small.yaml --run-dir "{dir}"

job full <<'END_OF_JOB'
version: 1
processes: {count: 16}
timeouts: {grace: 1s}
workloads:
  - command: [sh, -c, "trap '' TERM INT; echo $$ >>ranks; until [ -e go ]; do sleep 0.1; done; head -c 60000 /dev/zero | tr '\\0' x; sleep 1000"]
END_OF_JOB
: >ranks
started() { [ "$(wc -l <ranks)" = 16 ]; }
ranks_gone() { for rank in $(cat ranks); do gone_or_zombie "$rank" || return 1; done; }
start full.yaml
within 60 started
prlimit --pid "$pid" --as=65536
: >go
finish 60
is "a runner whose memory is limited while its ranks write: the exit code" "$code" 125
like "is one line" "$(err)" '^collrun: error: out of memory; .*machine$'
is "alone" "$(grep -c . err)" 1
check_within "no rank is left" 60 ranks_gone
done_testing
