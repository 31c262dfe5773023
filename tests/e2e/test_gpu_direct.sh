#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# nccl with `messages: direct`: messages with tag 0 are launched at their call (tests/gpu/workload/direct.c), with the cases of other
# messages that apply. Runs on the stand-in libraries of tests/fake, or with GPU=real (make test-gpu) on this machine's GPUs.
. "$(dirname "$0")/lib.sh"
. "$here/gpu_lib.sh"

# run_case CASE RANKS GPUS_PER_PROCESS [TIMEOUT]: sets code, out and err. Ranks may share a GPU. With check: async, the default, a job
# whose program goes on after a MISMATCH ends.
run_case() {
    local i list=
    for ((i = 0; i < $2 * $3; i++)); do list+="${list:+, }$((i % gpus))"; done
    job gpu <<END
version: 1
hosts: {nodes: [{name: here, transport: local, gpus: [$list]}]}
processes: {count: $2}
env: {set: {NCCL_HOSTID: "{rank}"}}
timeouts: {run: $((30 * slow))s}
groups:
  world: {backend: nccl, gpus_per_process: $3, timeout: ${4:-20s}${check:+, check: $check}, options: {messages: direct${algo:+, NCCL_ALGO: $algo}}}
$(for name in ${others:-}; do echo "  $name: {backend: nccl, gpus_per_process: $3, options: {messages: direct, NCCL_ALGO: $algo}}"; done)
workloads:
  - {plugin: ./gpu_test.so, params: {case: $1}}
END
    run run gpu.yaml
}
# good WHAT CASE RANKS GPUS [TIMEOUT]: every rank finishes without a failure.
good() {
    local what=$1
    shift
    if [ "$3" -gt "$gpus" ]; then
        skip "$what" "needs $3 GPUs, found $gpus"
        return
    fi
    run_case "$@"
    is "$what" "$code, $(grep -c 'done$' out) done, $(grep FAIL out | head -n 3)" "0, $2 done, "
}

good "both ranks start many sends, then the receives: with tag 0 and with another one" direct_flight 2 1
good "a pipeline by streams, beside a collective that is started elsewhere on each rank" direct_pipeline 4 1
good "a collective behind a receive does not hold up a send, which waits for its stream" direct_behind 2 1
good "all GPUs exchange messages with all in one call" direct_exchange 4 1
good "... with several GPUs in each process" direct_exchange 2 2
good "messages do not wait for the coordinator, which is stopped; one with a tag does" direct_stopped 3 1
algo=Ring others="second third" good "groups with an option that NCCL takes from the environment are first used in different orders" first_use 3 1 8s
good "a receive cannot be canceled: it is as if it was matched" direct_cancel 2 1
good "receives from any source, of any tag or a shorter message, and probes, are refused" direct_refused 2 1
check=strict good "ranks that disagree about a type end with MISMATCH" direct_type 2 1
good "a rank that does not send is named" direct_unmatched 2 1 2s

good "the other cases of messages: messages" messages 4 1
good "... between several GPUs of each process" messages 2 2
good "... both ranks send and receive: separate requests, and sendrecv" cross 2 1
good "... a blocking cross pair ends with a hint" deadlock 2 1 2s
good "... messages and collectives, one rank late" late_sender 3 1
good "... a message behind collectives that its peer starts later" overtake 2 1
good "... unmatched ones are named, with rank and GPU" unmatched 2 2 2s
good "... a message to the rank itself, behind a stream that is too slow" self 2 1 2s
good "... a rank closes a group before the others send in it" left 3 1
good "... operations on a stream that captures a graph are refused" capture 3 1

run_case direct_killed 3 1
like "a rank that waits for a message of one that is killed gets its error, and survives" "$(grep -c 'survived: .*rank 2 .*killed by signal 9' out)" '^2$'
ends "... and the job ends as it did" 137

job share <<END
version: 1
processes: {count: 2, gpus_per_process: 1}
groups: {dp: {backend: nccl}, tp: {backend: nccl, options: {share: dp}}}
workloads: [{plugin: hello}]
END
run check share.yaml
like "groups do not share a communicator: the option is refused" "$(err)" 'groups.tp.options: the backend "nccl" has no option "share"$'
like "... with those that there are" "$(err)" '^hint: its options: .*messages$'

if [ "${GPU:-}" != real ]; then
    check=strict good "ranks that disagree about a length end with MISMATCH" direct_count 2 1
    FAKE_NCCL_CONCURRENCY=1 FAKE_NCCL_STALL_MS=30000 good "an exchange of all on GPUs with room for one kernel" direct_exchange 4 1
    FAKE_NCCL_FAULT=ncclCommInitRank:2:5:1 run_case direct_flight 2 1
    like "a communicator that cannot be formed fails the group, with the cause" "$(err; out)" 'ncclCommInitRank.*: an injected fault'
    FAKE_NCCL_FAULT=ncclCommInitRank:2:7:0 good "one that is not connected in time is named, and the group closes beside the next one" direct_unformed 3 1 2s
    FAKE_NCCL_FAULT=ncclSend:12:2:0 run_case direct_flight 2 1
    like "an error of NCCL at the call is in the message" "$(err; out)" 'NCCL: .*ncclSend: an injected fault'
fi
done_testing
