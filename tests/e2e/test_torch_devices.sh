#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# collrun.torch with tensors on a device, without a GPU: a device type of torch (tests/python/torch_device.cc) in memory of the stand-ins
# for CUDA's libraries, on nccl, and of the pretend accelerator, on the backend that declares its memory; and by copies on shm. Every
# operation beside torch's gloo; streams, lifetimes, futures and DDP. `make torch-device PYTHON=...` builds what it needs.
. "$(dirname "$0")/lib.sh"
programs=$top/tests/python
python=${PYTHON:-python3}
built=${BUILD:-$top/build/release}/tests
limit=$((120 * slow))

reason=
case $home in *asan* | *tsan*) reason="a sanitized extension needs a sanitized interpreter" ;; esac
[ -f "$home/lib/collrun/python/collrun/_torch.so" ] && [ -f "$built/python/_torch_device.so" ] ||
    reason="the extensions are not built: make torch-device PYTHON=$python"
"$python" -c 'import torch' 2>/dev/null || reason="$python has no torch"
{ [ -e "$built/fake/libstandin.so" ] && [ -e "$built/hpu/libhpu.so" ]; } || reason="the stand-ins are not built (make fake hpu)"
if [ -n "$reason" ]; then
    skip "tensors on devices" "$reason"
    done_testing
fi

# program COUNT HEAD FILE ARGUMENTS: a job of COUNT ranks that run it; HEAD are lines of the job file.
program() {
    local count=$1 head=$2 file=$3 argument list
    shift 3
    list="'$python', '$programs/$file'"
    for argument; do list="$list, '$argument'"; done
    job devices <<END
version: 1
$head
env: {set: {OMP_NUM_THREADS: "1"}}
timeouts: {run: ${limit}s}
workloads:
  - {command: [$list]}
END
    run devices.yaml
}

export FAKE_CUDA_DEVICES=4 HPU_COUNT=4 HPU_LAG=20
gpus="processes: {count: 3, gpus_per_process: 1}"
hpus="processes: {count: 3, devices: {hpu: 1}}
backends: {hccl: {path: $built/hpu/libcollrun_hccl.so}}"
standin=$built/fake/libstandin.so # torch has loaded NVIDIA's libcudart and libnccl
export COLLRUN_LIBCUDART=$standin COLLRUN_LIBNCCL=$standin COLLRUN_LIBNVML=$built/fake/libnvidia-ml.so.1
cuda=(standin cuda "$standin" "$built/python")
hpu=(hpx hpu "$built/hpu/libhpu.so" "$built/python")

for backend in nccl '{host: shm, cuda: nccl}' shm; do
    program 3 "$gpus
groups: {world: {backend: $backend}}" torch_oracle.py collrun:// "${cuda[@]}"
    ends "stand-in GPUs, $backend: every operation beside gloo" 0
    is "stand-in GPUs, $backend: comparisons" "$(grep -cE 'rank [0-2]: [0-9]{3} comparisons' out)" 3
done
for backend in hccl shm; do
    program 3 "$hpus
groups: {world: {backend: $backend}}" torch_oracle.py collrun:// "${hpu[@]}"
    ends "pretend accelerator, $backend: every operation beside gloo" 0
    is "pretend accelerator, $backend: comparisons" "$(grep -cE 'rank [0-2]: [0-9]{3} comparisons' out)" 3
done

for backend in nccl shm; do
    program 3 "$gpus
groups: {world: {backend: $backend}}" torch_streams.py "${backend/shm/copies}" "${cuda[@]}"
    ends "stand-in GPUs, $backend: streams, lifetimes, futures, DDP" 0
    is "stand-in GPUs, $backend: done on $backend" "$(grep -cE "rank [0-2]: (done|$backend)\$" out)" 6
done
done_testing
