#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Arrays in memory of a device, in Python, without a GPU: on nccl with the stand-ins of tests/fake, on the pretend accelerator of
# tests/hpu, and on backends for host memory, to which the engine copies. Every operation, type and operator against numpy; what is
# refused; that an operation comes after the work that the library of the array has queued.
. "$(dirname "$0")/lib.sh"
. "$here/python_lib.sh"
needs "the package is not built: Python.h is missing (python3-dev)" "$home/lib/collrun/python/collrun/_collrun.abi3.so"
needs_python "$python has no numpy" 'import numpy, sys; sys.exit(sys.version_info < (3, 11))'
needs "the stand-ins are not built (make fake hpu)" "$built/fake/libnccl.so.2" "$built/hpu/libhpu.so"
or_skip "arrays on devices"

# oracle COUNT LINES PREFIX LIBRARY GROUP: a job of COUNT ranks that compare the group's operations; LINES are those of the job file.
oracle() {
    python_job "$2" "$programs/oracle.py" device "${@:3}"
    ends "$title: runs" 0
    is "$title: every rank" "$(grep -cE '\] [0-9]{3,} checks passed$' out)" "$1"
}

gpus='groups:
  world: {backend: shm}
  on-nccl: {ranks: all, backend: nccl}
  on-shm: {ranks: all, backend: shm}
  on-tcp: {ranks: all, backend: tcp}
  on-both: {ranks: all, backend: {host: shm, cuda: nccl}}'
export FAKE_CUDA_DEVICES=8
for group in on-nccl on-both on-shm on-tcp; do
    title="stand-in GPUs, group $group"
    LD_LIBRARY_PATH=$built/fake oracle 3 "processes: {count: 3, gpus_per_process: 1}
$gpus" cuda "$built/fake/libcudart.so.13" $group
done
for group in on-nccl on-shm; do
    title="stand-in GPUs, two for each rank, group $group"
    LD_LIBRARY_PATH=$built/fake oracle 2 "processes: {count: 2, gpus_per_process: 2}
groups: {world: {backend: shm}, on-nccl: {ranks: all, backend: nccl, gpus_per_process: 1}, on-shm: {ranks: all, backend: shm}}" \
        cuda "$built/fake/libcudart.so.13" $group
done

export HPU_COUNT=4 HPU_LAG=20
for group in on-hccl on-both on-shm; do
    title="pretend accelerator, group $group"
    oracle 3 "processes: {count: 3, devices: {hpu: 1}}
backends: {hccl: {path: $built/hpu/libcollrun_hccl.so}}
groups:
  world: {backend: shm}
  on-hccl: {ranks: all, backend: hccl}
  on-both: {ranks: all, backend: {host: shm, hpu: hccl}}
  on-shm: {ranks: all, backend: shm}" hpu "$built/hpu/libhpu.so" $group
done
done_testing
