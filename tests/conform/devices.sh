#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The conformance suite with buffers on GPUs, on nccl: 1, 2 and 4 processes with 1, 2 and 4 GPUs each (8 in all, in full scope 16), overlapping groups, staging
# through host memory, an older NCCL. On the machine's own GPUs as far as there are enough of them, else on the stand-in
# libraries of tests/fake, and it says so. TAP. From the environment:
#   COLLRUN    the command under test (build/release/bin/collrun); the stand-ins are in its build folder
#   SCOPE      core (default) or full, as in run.sh
#   JOBS       only jobs whose title matches this extended regular expression
#   SEED       of the fuzzer and the pairwise choice          STEPS   length of the fuzz programs (300)
#   FAKE=1     the stand-ins, whatever GPUs there are         BACKEND the path of another backend for GPUs
#   JOB_TIMEOUT of one job, in seconds (600; 900 on GPUs, or in full scope) CONFORM_SO the workload, if it is built already
#   FIRST=1    ends each job at its first failure
#   KEEP=1     keep the folder with job files and outputs
set -u
. "$(dirname "$0")/lib.sh"
fake=$prefix/tests/fake
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
[ "$gpus" -gt 0 ] || gpus=$(find /proc/driver/nvidia/gpus -mindepth 1 -maxdepth 1 2>/dev/null | wc -l)
[ -z "${FAKE:-}" ] || gpus=0
if [ "${GPU:-}" = real ] && [ "$gpus" -eq 0 ]; then
    printf 'ok 1 - on real GPUs # SKIP there is no GPU here (nvidia-smi -L lists none)\n1..1\n'
    exit 0
fi
# Processes that share a GPU take turns; in full scope there are twice as many cases.
job_timeout=$(seconds "$([ "$gpus" -gt 0 ] && echo 900 || echo 600)" 900)
own_folder devices

if [ "$gpus" -eq 0 ]; then
    [ -e "$fake/libnccl.so.2" ] || { echo "1..0 # SKIP no GPU, and no stand-ins in $fake (make fake)"; exit 1; }
    echo "# no GPU is used: CUDA, NCCL and NVML are the stand-ins in $fake"
    export LD_LIBRARY_PATH=$fake${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} FAKE_CUDA_DEVICES=16
    export FAKE_NCCL_STALL_MS=${FAKE_NCCL_STALL_MS:-30000} # less than the time-out of an operation, and more than a busy machine needs
else
    echo "# on $gpus GPUs of this machine"
fi

build_workload
name=nccl
if [ -n "${BACKEND:-}" ]; then
    name=$(basename "$BACKEND" .so)
    name=${name#libcollrun_}
fi

# ---- jobs ----
# "g-2-0" is a group of the world ranks 2 and 0, in that order; "s-..." the same on shm; "m-..." names a disagreement of ranks 0 to 2.
job() { # PROCESSES GPUS_EACH TEAMS PARAMS
    local group ranks backend options i list=
    echo "version: 1"
    if [ "$gpus" -gt 0 ] && [ $(($1 * $2)) -gt "$gpus" ]; then # they share GPUs; NCCL takes each rank for a separate host
        for ((i = 0; i < $1 * $2; i++)); do list+="${list:+, }$((i % gpus))"; done
        echo "hosts: {nodes: [{name: here, transport: local, gpus: [$list]}]}"
        echo 'env: {set: {NCCL_HOSTID: "{rank}"}}'
    fi
    echo "processes: {count: $1, gpus_per_process: $2}"
    [ -z "${BACKEND:-}" ] || printf 'backends:\n  %s: {path: %s}\n' "$name" "$(realpath "$BACKEND")"
    echo "groups:"
    for group in $3; do
        ranks=${group#*-}
        backend=$name
        [[ $group != s-* ]] || backend=shm
        [[ $group != m-* ]] || ranks=0-1-2
        options=
        [ "$backend" = shm ] || options+=${MESSAGES:+messages: $MESSAGES}
        echo "  $group: {ranks: [${ranks//-/, }], backend: $backend, timeout: ${GROUP_TIMEOUT:-60s}${CHECK:+, check: $CHECK}${options:+, options: {$options\}}}"
    done
    job_end "$3" "device: cuda, $4"
}

try() { # TITLE PROCESSES GPUS_EACH TEAMS PARAMS
    job_chosen "$1" || return
    if [ "$gpus" -gt 0 ] && [ "$3" -gt "$gpus" ]; then
        echo "ok $number - $name: $1 # SKIP needs $3 GPUs"
        return
    fi
    job_run "$1" "$2" < <(job "$2" "$3" "$4" "$5")
}

world() { # PROCESSES
    echo "g$(seq -f '-%g' -s '' 0 $(($1 - 1)))"
}

for processes in 1 2 4; do
    try "$processes processes with 1 GPU: sweep, messages, large" "$processes" 1 "$(world "$processes")" \
        'suite: "sweep p2p large", max_bytes: 300000'
    try "$processes processes with 1 GPU: operators of the workload, batches" "$processes" 1 "$(world "$processes")" \
        'suite: "user_op batch"'
    for each in 2 4; do
        [ $((processes * each)) -le 8 ] || [ "${SCOPE:-core}" = full ] || continue # 16 GPUs: minutes, of stand-ins on few cores
        try "$processes processes with $each GPUs" "$processes" "$each" "$(world "$processes")" 'suite: "devices user_op"'
    done
done
overlapping="g-0-1-2-3 g-3-1 g-0-2 g-2-1-0 g-1-3"
try "started, then waited for by host or stream" 3 1 "g-2-0-1" 'suite: sweep, async: true'
try "in collrun_alloc_device" 3 1 "g-2-0-1" 'suite: sweep, async: true, alloc: true'
try "random programs, one thread" 4 1 "$overlapping" "suite: fuzz, steps: ${STEPS:-300}"
try "random programs, three threads" 4 1 "$overlapping" "suite: fuzz, steps: ${STEPS:-300}, threads: 3"
try "random programs, asynchronous" 4 1 "$overlapping" "suite: fuzz, steps: ${STEPS:-300}, async: true"
try "random programs, asynchronous, three threads" 4 1 "$overlapping" "suite: fuzz, steps: ${STEPS:-300}, threads: 3, async: true"
try "random programs, each rank in its own order" 4 1 "$overlapping" "suite: fuzz, steps: ${STEPS:-300}, shuffle: true"
try "random programs, each rank in its own order, three threads" 4 1 "$overlapping" "suite: fuzz, steps: ${STEPS:-300}, threads: 3, shuffle: true"
try "requests" 3 1 "g-2-0-1" "suite: async, steps: ${REQUESTS:-300}"
try "what receives learn, probes, messages to oneself, threads" 4 1 "g-1 g-0-1 g-2-0-1 g-3-1-0-2" "suite: envelope"
CHECK=strict try "messages that disagree" 3 1 "m-sendcount m-sendtype" "suite: mismatch"
try "random programs, staged through host memory" 4 1 "g-0-1-2-3 s-3-1 g-0-2 s-2-1-0" "suite: fuzz, steps: ${STEPS:-300}, async: true"
# Messages with tag 0 are launched at their call, beside others. Two communicators for each pair of GPUs.
if [ -z "${BACKEND:-}" ]; then
    export MESSAGES=direct FAKE_NCCL_CONCURRENCY=${FAKE_NCCL_CONCURRENCY:-16}
    try "direct messages: messages" 4 1 "g-0-1-2-3 g-2-0" 'suite: p2p, direct: true'
    try "direct messages: 2 processes, 2 GPUs each" 2 2 "g-0-1" 'suite: devices, direct: true'
    try "direct messages: requests" 3 1 "g-2-0-1" "suite: async, steps: ${REQUESTS:-300}, direct: true"
    try "direct messages: random programs, asynchronous, three threads" 4 1 "$overlapping" "suite: fuzz, steps: ${STEPS:-300}, threads: 3, async: true, direct: true"
    try "direct messages: random programs, each rank in its own order" 4 1 "$overlapping" "suite: fuzz, steps: ${STEPS:-300}, shuffle: true, direct: true"
    unset MESSAGES
fi
if [ "$gpus" -eq 0 ]; then
    LD_LIBRARY_PATH=$fake/old:$LD_LIBRARY_PATH SCOPE=full try "an NCCL without alltoall, gather, scatter" 2 2 "g-0-1" 'suite: devices'
fi
finish "$name on $([ "$gpus" -gt 0 ] && echo "$gpus GPUs" || echo stand-ins)"
