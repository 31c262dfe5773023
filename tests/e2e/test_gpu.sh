#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The GPU workload (tests/gpu/workload): order by streams, several GPUs per process, messages, several groups, memory, bounce buffers,
# mixed groups, failures. Runs on the stand-in libraries of tests/fake, or with GPU=real (make test-gpu) on this machine's GPUs.
. "$(dirname "$0")/lib.sh"
. "$here/gpu_lib.sh"

# hosts GPUS: this machine with a list of that many GPUs; if it has fewer, ranks share them.
hosts() {
    local i list=
    [ "$1" -le "$gpus" ] && return
    for ((i = 0; i < $1; i++)); do list+="${list:+, }$((i % gpus))"; done
    echo "hosts: {nodes: [{name: here, transport: local, gpus: [$list]}]}"
}
# run_case CASE BACKEND RANKS GPUS_PER_PROCESS [LINES OF THE JOB [CHECK]]: sets code, out and err. Ranks may share a GPU:
# NCCL takes each rank for a separate host.
run_case() {
    {
        echo "version: 1"
        hosts $(($3 * $4))
        echo "processes: {count: $3}"
        echo "env: {set: {NCCL_HOSTID: \"{rank}\"}}"
        grep -q timeouts <<<"${5:-}" || echo "timeouts: {run: $((60 * slow))s}"
        echo "groups:"
        echo "  world: {backend: $2, gpus_per_process: $4, timeout: 2s, check: ${6:-async}}"
        [ -z "${5:-}" ] || printf '%s\n' "$5"
        echo "workloads:"
        echo "  - {plugin: ./gpu_test.so, params: {case: $1}}"
    } >"$tmp/gpu.yaml"
    run run gpu.yaml
}
# good WHAT CASE BACKEND RANKS GPUS [LINES]: every rank finishes without a failure.
good() {
    local what=$1
    shift
    if [ "$4" -gt "$gpus" ]; then
        skip "$what" "needs $4 GPUs, found $gpus"
        return
    fi
    run_case "$@"
    is "$what" "$code, $(grep -c 'done$' out) done, $(grep FAIL out | head -n 3)" "0, $3 done, "
}

# ---- one GPU per process ----
good "streams keep the order of a late input and an early reader" streams nccl 3 1
good "a scan that is started does not wait for its stream on the host" held_up nccl 3 1
good "... nor a collective that another backend does for the GPU" held_up shm 3 1
good "... nor over TCP" held_up gloo 2 1
good "operations on a stream that captures a graph are refused, and others do not disturb it" capture nccl 3 1
good "... nor do those of another backend for the GPU" capture shm 3 1
good "collectives" devices nccl 4 1
good "messages" messages nccl 4 1
good "both ranks send and receive: separate requests, and sendrecv" cross nccl 2 1
good "a receive without its sender can be canceled, and keeps nothing else waiting" posted nccl 2 1
good "memory of the group" memory nccl 2 1
good "two groups, from two threads" groups nccl 3 1 "  second: {ranks: [2, 0, 1], backend: nccl, gpus_per_process: 1}"
good "two threads start on two groups in different orders" threads nccl 2 1 "  second: {backend: nccl, gpus_per_process: 1}"
good "one thread starts on two groups in different orders" inverse nccl 2 1 "  second: {backend: nccl, gpus_per_process: 1}"
good "chains by a stream, which differ by rank" chains nccl 2 1 "$(printf '  %s: {backend: nccl, gpus_per_process: 1}\n' second third)"
good "two threads form groups at the same time, in different orders" forming nccl 3 1
good "batches: one launch, unless a call needs an earlier one on some rank" batches nccl 3 1
good "... and with one rank" batches nccl 1 1
good "a blocking cross pair ends with a hint" deadlock nccl 2 1
good "messages and collectives, one rank late" late_sender nccl 3 1
good "a message behind collectives that its peer starts later" overtake nccl 2 1
good "a message to the rank itself, behind a stream that is too slow" self nccl 2 1
good "a late rank causes a time-out, and the GPU is usable afterwards" late nccl 3 1

run_case late_scan nccl 2 1
like "a rank that does not join a scan is named, without the engine's messages" "$(grep late_scan: out)" \
    'late_scan: scan world#1: rank 0 waited 2.0 s for rank 1: rank 1 did not reach this step of the operation$'

# ---- communicators ----
good "messages get their communicator when the first is sent" lean nccl 3 1 "  sync: {backend: shm, gpus_per_process: 0}"
good "several groups are first used at the same time, in different orders" first_use nccl 3 1 \
    "$(printf '  %s: {backend: nccl, gpus_per_process: 1}\n' second third)"
good "a rank closes a group before the others send in it" left nccl 3 1
good "a group that has failed is destroyed beside collectives in different orders" broken nccl 2 1
# implicit GROUPS WORKLOAD: a job in which world is not under groups.
implicit() {
    job gpu <<END
version: 1
$(hosts 3)
processes: {count: 3, gpus_per_process: 1}
env: {set: {NCCL_HOSTID: "{rank}"}}
timeouts: {run: $((60 * slow))s}
$1
workloads:
  - {plugin: ./gpu_test.so, $2}
END
    run run gpu.yaml
    is "$3" "$code, $(grep -c 'done$' out), $(grep FAIL out | head -n 3)" "0, 3, "
}
sync="sync: {backend: shm, gpus_per_process: 0}"
implicit "groups: {$sync}" "params: {case: lean, communicators: 0}" "world, which job.yaml does not name, gets a communicator when it is first used"
implicit "groups: {$sync}" "params: {case: lean, communicators: 1}, groups: [world, sync]" "... but at the start if a workload lists it"
implicit "groups: {train: {gpus_per_process: 1}, idle: {gpus_per_process: 1}, $sync}" "params: {case: lean, group: train}, groups: [train, sync]" \
    "a group that no workload lists has none"
implicit "groups: {second: {gpus_per_process: 1}, third: {gpus_per_process: 1}}" "params: {case: first_use}" \
    "world is first used while other groups are, in different orders"

# ---- several ----
for shape in "1 2" "1 4" "2 2" "4 2" "2 4"; do
    read -r ranks devices <<<"$shape"
    good "$ranks x $devices: collectives" devices nccl "$ranks" "$devices"
    good "$ranks x $devices: messages" messages nccl "$ranks" "$devices"
done
good "2 x 2: memory of the group" memory nccl 2 2
good "2 x 2: unmatched messages are named, with rank and GPU" unmatched nccl 2 2

# ---- other backends ----
good "buffers on a GPU, on shm" staged shm 3 1
good "buffers on either of two GPUs, on shm" staged shm 2 2
good "buffers on a GPU, on gloo" staged gloo 3 1
good "host memory on gloo, GPU memory on nccl, in one group" mixed '{host: gloo, cuda: nccl}' 3 1
good "the same with shm" mixed '{host: shm, cuda: nccl}' 2 1

# ---- an example ----
job bench <<END
version: 1
$(hosts 3)
processes: {count: 3, gpus_per_process: 1}
env: {set: {NCCL_HOSTID: "{rank}"}}
workloads:
  - {plugin: bench, params: {ops: all, max: 4KiB, factor: 8, iters: 3, dtype: int32}}
END
run run bench.yaml
is "bench: every operation, on the GPU" "$code, $(grep -c 'in group world: 3 ranks on nccl' out), $(grep -c 'values : 0 OK' out)" "0, 17, 1"
if [ "$gpus" -ge 4 ]; then
    job bench <<END
version: 1
processes: {count: 2, gpus_per_process: 2}
workloads:
  - {plugin: bench, params: {ops: all, max: 4KiB, factor: 8, iters: 3, dtype: int32, root: 3}}
END
    run bench.yaml
    is "bench: every operation, on two GPUs of each process" "$code, $(grep -c 'in group world: 4 ranks on nccl' out), $(grep -c 'values : 0 OK' out)" "0, 17, 1"
    run "$top/configs/devices.yaml"
    is "devices: the example drives two GPUs of each process" "$code, $(grep -cE 'process [01] of 2: 2 GPUs, ranks (0 to 1|2 to 3) of 4: .* right$' out)" "0, 2"
else
    skip "bench and devices: several GPUs of each process" "needs 4 GPUs, found $gpus"
fi

# ---- failures ----
run_case peer nccl 3 1
like "when a rank fails the others get its error and survive" "$(grep -c 'survived: allreduce world#1: rank 2 .*fails on purpose' out)" '^2$'
ends "... and the job fails" 1
good "check: strict works on GPUs" devices nccl 2 2 "" strict
good "... and finds ranks that disagree" mismatch nccl 2 1 "" strict

if [ "${GPU:-}" != real ]; then
    FAKE_NCCL_FAULT=kernel:9:6 run_case fault nccl 2 1
    like "an error of NCCL on the GPU is in the message" "$(out)" 'fault: allreduce world#[0-9]+: NCCL: .*an injected fault in a kernel'
    FAKE_NCCL_FAULT=ncclAllReduce:5:2:1 run_case fault nccl 2 1
    like "an error of NCCL at the call is in the message" "$(out)" 'fault: allreduce world#[0-9]+: NCCL: .*ncclAllReduce: an injected fault'
    like "the communicator has the name of the group, its stream the highest priority" "$(err)" \
        'libnccl \(stand-in\): world rank 1 of 2: .* on a stream of priority -5$'
    FAKE_CUDA_FAULT=cudaEventQuery:60:719 FAKE_NVML_XID=0:79:1 run_case fault nccl 1 1
    like "the driver's reason is in the message" "$(err; out)" 'unspecified launch failure \(Xid 79 on GPU .*fallen off the bus\)'
    stuck() { # FAULT RENDEZVOUS: sets `took` to the seconds that it took
        local begin=$SECONDS
        FAKE_NCCL_FAULT=$1 run_case devices nccl 3 1 "timeouts: {run: 80s, rendezvous: $2, grace: 1s}"
        took=$((SECONDS - begin))
    }
    stuck ncclCommInitRank:1:99:1 4s
    like "a rank that hangs while it forms a group is named" "$(err)" 'rank 1 .*group "world" on backend "nccl": ncclCommInitRankConfig has not returned for [0-9.]+ s'
    stuck ncclCommInitRank:1:7:1 4s
    like "if no rank is missing the message blames the connection of NCCL" "$(err)" 'all ranks have arrived, but NCCL did not connect them within [0-9.]+ s'
    stuck ncclCommInitRank:1:5:1 60s
    like "an error while forming a group" "$(err)" 'rank 1 .*group "world" on backend "nccl": ncclCommInitRankConfig: .*an injected fault'
    check "... ends the other ranks at once: $took s" test "$took" -lt 30
    FAKE_CUDA_NO_DRIVER=1 run_case devices nccl 2 1
    like "without a driver the job is refused, at its line" "$(err)" 'gpu.yaml:[0-9]+:.*"nccl" is not available here: no NVIDIA driver'
    LD_LIBRARY_PATH=$fake/old:$LD_LIBRARY_PATH good "an old NCCL without alltoall, gather, scatter, revoke" devices nccl 2 2
    LD_LIBRARY_PATH=$fake/old:$LD_LIBRARY_PATH good "... and a time-out with it" late nccl 3 1
elif command -v compute-sanitizer >/dev/null; then
    printf '#!/bin/sh\nexec compute-sanitizer --target-processes all --report-api-errors no --error-exitcode 99 "%s" "$@"\n' "$COLLRUN" >"$tmp/checked"
    chmod +x "$tmp/checked"
    COLLRUN=$tmp/checked slow=10 limit=300
    for case in streams devices messages memory; do
        good "compute-sanitizer finds nothing: $case" $case nccl 2 1
    done
else
    skip "compute-sanitizer finds nothing" "compute-sanitizer is not installed"
fi
done_testing
