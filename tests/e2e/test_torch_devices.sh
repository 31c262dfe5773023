#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# collrun.torch with tensors on a device, without a GPU: a device type of torch (tests/python/torch_device.cc) in memory of the stand-ins
# for CUDA's libraries, on nccl, and of the pretend accelerator, on the backend that declares its memory; and by copies on shm. Every
# operation beside torch's gloo; streams, lifetimes, futures and DDP. `make torch-device PYTHON=...` builds what it needs.
. "$(dirname "$0")/lib.sh"
. "$here/python_lib.sh"
needs "the extensions are not built: make torch-device PYTHON=$python" "$home/lib/collrun/python/collrun/_torch.so" "$built/python/_torch_device.so"
needs_python "$python has no torch" 'import torch'
needs "the stand-ins are not built (make fake hpu)" "$built/fake/libstandin.so" "$built/hpu/libhpu.so"
or_skip "tensors on devices"

export FAKE_CUDA_DEVICES=4 HPU_COUNT=4 HPU_LAG=20
gpus="processes: {count: 3, gpus_per_process: 1}"
hpus="processes: {count: 3, devices: {hpu: 1}}
backends: {hccl: {path: $built/hpu/libcollrun_hccl.so}}"
standin=$built/fake/libstandin.so # torch has loaded NVIDIA's libcudart and libnccl
export COLLRUN_LIBCUDART=$standin COLLRUN_LIBNCCL=$standin COLLRUN_LIBNVML=$built/fake/libnvidia-ml.so.1
cuda=(standin cuda "$standin" "$built/python")
hpu=(hpx hpu "$built/hpu/libhpu.so" "$built/python")

for backend in nccl '{host: shm, cuda: nccl}' shm; do
    python_job "$gpus
groups: {world: {backend: $backend}}" "$programs/torch_oracle.py" collrun:// "${cuda[@]}"
    ends "stand-in GPUs, $backend: every operation beside gloo" 0
    is "stand-in GPUs, $backend: comparisons" "$(grep -cE 'rank [0-2]: [0-9]{3} comparisons' out)" 3
done
for backend in hccl shm; do
    python_job "$hpus
groups: {world: {backend: $backend}}" "$programs/torch_oracle.py" collrun:// "${hpu[@]}"
    ends "pretend accelerator, $backend: every operation beside gloo" 0
    is "pretend accelerator, $backend: comparisons" "$(grep -cE 'rank [0-2]: [0-9]{3} comparisons' out)" 3
done

for backend in nccl shm; do
    python_job "$gpus
groups: {world: {backend: $backend}}" "$programs/torch_streams.py" "${backend/shm/copies}" "${cuda[@]}"
    ends "stand-in GPUs, $backend: streams, lifetimes, futures, DDP" 0
    is "stand-in GPUs, $backend: done on $backend" "$(grep -cE "rank [0-2]: (done|$backend)\$" out)" 6
done
done_testing
