#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# GPUs: order by streams, several GPUs per process, messages, groups at once, memory, staging, mixed groups, failures: the drills
# of tests/gpu/drill. On the stand-ins of tests/fake, or with GPU=real (make test-gpu) on what this machine has.
. "$(dirname "$0")/lib.sh"
fake=${BUILD:-$top/build/release}/tests/fake
gpus=${FAKE_CUDA_DEVICES:-8}
if [ "${GPU:-}" = real ]; then
    gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
    [ "$gpus" -gt 0 ] || gpus=$(find /proc/driver/nvidia/gpus -mindepth 1 -maxdepth 1 2>/dev/null | wc -l)
    [ "$gpus" -gt 0 ] || { skip "drills on a real GPU" "there is no GPU here (nvidia-smi -L lists none)"; done_testing; }
else
    export LD_LIBRARY_PATH=$fake${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
plugin "$top/tests/gpu/drill" "$tmp/drill.so" -ldl || { echo "Bail out! the drills do not compile"; exit 1; }

# hosts GPUS: this machine, with a list of so many; where there are fewer, they are shared.
hosts() {
    local i list=
    [ "$1" -le "$gpus" ] && return
    for ((i = 0; i < $1; i++)); do list+="${list:+, }$((i % gpus))"; done
    echo "hosts: {nodes: [{name: here, transport: local, gpus: [$list]}]}"
}
# drill CASE BACKEND RANKS GPUS_PER_PROCESS [LINES OF THE JOB [CHECK]]: leaves code, out and err. Ranks may share a GPU: to NCCL each is a
# host of its own.
drill() {
    {
        echo "version: 1"
        hosts $(($3 * $4))
        echo "processes: {count: $3}"
        echo "env: {set: {NCCL_HOSTID: \"{rank}\"}}"
        grep -q timeouts <<<"${5:-}" || echo "timeouts: {run: $((20 * slow))s}"
        echo "groups:"
        echo "  world: {backend: $2, gpus_per_process: $4, timeout: 2s, check: ${6:-async}}"
        [ -z "${5:-}" ] || printf '%s\n' "$5"
        echo "workloads:"
        echo "  - {plugin: ./drill.so, params: {case: $1}}"
    } >"$tmp/drill.yaml"
    run run drill.yaml
}
# good WHAT CASE BACKEND RANKS GPUS [LINES]: every rank comes to its end without a complaint.
good() {
    local what=$1
    shift
    if [ "$4" -gt "$gpus" ]; then
        skip "$what" "it takes $4 GPUs, and there are $gpus"
        return
    fi
    drill "$@"
    is "$what" "$code, $(grep -c 'done$' out) done, $(grep FAIL out | head -n 3)" "0, $3 done, "
}

# ---- one GPU per process ----
good "a late input, an early reader: streams keep the order" streams nccl 3 1
good "collectives" devices nccl 4 1
good "messages" messages nccl 4 1
good "head to head: started one by one, and by sendrecv" cross nccl 2 1
good "memory of the group" memory nccl 2 1
good "two groups at once, from two threads" groups nccl 3 1 "  second: {ranks: [2, 0, 1], backend: nccl, gpus_per_process: 1}"
good "two threads that start on two groups in different orders" threads nccl 2 1 "  second: {backend: nccl, gpus_per_process: 1}"
good "two groups in different orders, from one thread" inverse nccl 2 1 "  second: {backend: nccl, gpus_per_process: 1}"
good "chains by a stream that differ by rank" chains nccl 2 1 "$(printf '  %s: {backend: nccl, gpus_per_process: 1}\n' second third)"
good "groups that two threads form at once, in different orders" forming nccl 3 1
good "a blocking cross pair ends, and says what to do" deadlock nccl 2 1
good "messages and collectives, one rank late" walk nccl 3 1
good "a message behind collectives that its peer comes to later" overtake nccl 2 1
good "to itself, behind a stream that takes too long" self nccl 2 1
good "a rank that is late: a time-out, and the GPU is free again" late nccl 3 1

# ---- several ----
for shape in "1 2" "1 4" "2 2" "4 2" "2 4"; do
    read -r ranks devices <<<"$shape"
    good "$ranks x $devices: collectives" devices nccl "$ranks" "$devices"
    good "$ranks x $devices: messages" messages nccl "$ranks" "$devices"
done
good "2 x 2: memory of the group" memory nccl 2 2
good "2 x 2: messages that nobody answers are named, with rank and GPU" unmet nccl 2 2

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
is "bench: every operation, on the GPU" "$code, $(grep -c 'in group world: 3 ranks on nccl' out), $(grep -c 'values : 0 OK' out)" "0, 10, 1"

# ---- failures ----
drill peer nccl 3 1
like "a rank that fails: the others are told, and survive" "$(grep -c 'survived: allreduce world#1: rank 2 .*drilled to fail' out)" '^2$'
among "and the job fails because of it" $code 1
good "check: strict works on GPUs" devices nccl 2 2 "" strict
good "and finds ranks that disagree" mismatch nccl 2 1 "" strict

if [ "${GPU:-}" != real ]; then
    FAKE_NCCL_FAULT=kernel:9:6 drill fault nccl 2 1
    like "an error of NCCL on the GPU is in the sentence" "$(out)" 'fault: allreduce world#[0-9]+: NCCL: .*a planted fault in a kernel'
    FAKE_NCCL_FAULT=ncclAllReduce:5:2:1 drill fault nccl 2 1
    like "an error at the call too" "$(out)" 'fault: allreduce world#[0-9]+: NCCL: .*ncclAllReduce: a planted fault'
    like "the communicator has the group's name, its stream the highest priority" "$(err)" \
        'libnccl \(stand-in\): world rank 1 of 2: .* on a stream of priority -5$'
    FAKE_CUDA_FAULT=cudaEventQuery:60:719 FAKE_NVML_XID=0:79:1 drill fault nccl 1 1
    like "what the driver knows of it stands beside it" "$(err; out)" 'unspecified launch failure \(Xid 79 on GPU .*fallen off the bus\)'
    stuck() { # FAULT: leaves how long it took
        local begin=$SECONDS
        FAKE_NCCL_FAULT=$1 drill devices nccl 3 1 "timeouts: {run: 20s, rendezvous: 4s, grace: 1s}"
        took=$((SECONDS - begin))
    }
    stuck ncclCommInitRank:1:99:1
    like "a rank that gets stuck in forming a group is named" "$(err)" 'group "world": waited 4.0 s for rank 1 of 3, which joined but did not finish'
    stuck ncclCommInitRank:1:7:1
    like "where none is missing it says that NCCL does not connect" "$(err)" 'all ranks are there, and NCCL did not connect them within 3'
    stuck ncclCommInitRank:1:5:1
    like "an error in forming a group" "$(err)" 'rank 1 .*group "world" on backend "nccl": ncclCommInitRankConfig: .*a planted fault'
    check "... ends the others at once: $took s" test "$took" -le 2
    FAKE_CUDA_NO_DRIVER=1 drill devices nccl 2 1
    like "without a driver the job is refused at its line" "$(err)" 'drill.yaml:[0-9]+:.*"nccl" is not available here: no NVIDIA driver'
    LD_LIBRARY_PATH=$fake/old:$LD_LIBRARY_PATH good "an NCCL without alltoall, gather, scatter, revoke" devices nccl 2 2
    LD_LIBRARY_PATH=$fake/old:$LD_LIBRARY_PATH good "... and a time-out on it" late nccl 3 1
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
