#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The conformance suite with buffers in a kind of memory that only a backend knows: the pretend accelerator of tests/hpu, whose memory
# the host cannot read. Groups on its backend (hccl), on a backend per kind of memory, and on backends for host memory, to which the
# engine copies. TAP. From the environment: COLLRUN, SCOPE, JOBS, SEED, STEPS, JOB_TIMEOUT, CONFORM_SO and KEEP, as in devices.sh.
set -u
. "$(dirname "$0")/lib.sh"
hpu=$prefix/tests/hpu
name=hpu
job_timeout=$(seconds 240 900)
own_folder hpu
[ -e "$hpu/libcollrun_hccl.so" ] || { echo "1..0 # SKIP no $hpu (make hpu)"; exit 1; }
export HPU_COUNT=8 HPU_LAG=20 CONFORM_LIBHPU=$hpu/libhpu.so
build_workload

# "h-2-0" is a group of the world ranks 2 and 0 on hccl, "s-..." on shm, "t-..." on gloo, "b-..." on {host: shm, hpu: hccl}.
job() { # PROCESSES TEAMS PARAMS
    local group ranks backend
    echo "version: 1"
    echo "processes: {count: $1, devices: {hpu: 1}}"
    echo "backends: {hccl: {path: $hpu/libcollrun_hccl.so}}"
    echo "groups:"
    for group in $2; do
        ranks=${group#*-}
        case $group in
        s-*) backend=shm ;;
        t-*) backend=gloo ;;
        b-*) backend='{host: shm, hpu: hccl}' ;;
        m-*) backend=hccl ranks=0-1-2 ;;
        *) backend=hccl ;;
        esac
        echo "  $group: {ranks: [${ranks//-/, }], backend: $backend, timeout: 60s${CHECK:+, check: $CHECK}}"
    done
    job_end "$2" "device: ${DEVICE:-hpu}, $3"
}

try() { # TITLE PROCESSES TEAMS PARAMS
    job_chosen "$1" || return
    job_run "$1" "$2" < <(job "$2" "$3" "$4")
}

steps=${STEPS:-200}
for n in 1 2 4; do
    try "hccl, $n ranks: sweep, messages, large" "$n" "h$(seq -f '-%g' -s '' 0 $((n - 1)))" 'suite: "sweep p2p large", max_bytes: 300000'
done
try "hccl, started" 3 "h-2-0-1" 'suite: sweep, async: true'
try "hccl, in collrun_alloc_device" 3 "h-2-0-1" 'suite: sweep, async: true, alloc: true'
CHECK=strict try "hccl, check: strict" 3 "h-2-0-1" 'suite: sweep'
try "{host: shm, hpu: hccl}, buffers of HPUs" 3 "b-2-0-1" 'suite: "sweep p2p"'
DEVICE=none try "{host: shm, hpu: hccl}, buffers of the host" 3 "b-2-0-1" 'suite: "sweep p2p"'
try "shm, copied" 3 "s-2-0-1" 'suite: "sweep p2p large", max_bytes: 300000'
try "gloo, copied" 3 "t-2-0-1" 'suite: "sweep p2p"'
overlapping="h-0-1-2-3 s-3-1 b-0-2 t-2-1-0"
try "random programs" 4 "$overlapping" "suite: fuzz, steps: $steps"
try "random programs, asynchronous, three threads" 4 "$overlapping" "suite: fuzz, steps: $steps, threads: 3, async: true"
CHECK=strict try "messages that disagree" 3 "m-sendcount m-sendtype" "suite: mismatch"
finish "a pretend accelerator"
