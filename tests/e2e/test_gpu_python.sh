#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Python package and collrun.torch on real GPUs (make test-gpu): every operation, type and operator against numpy, with CUDA's own
# runtime; arrays of cupy, tensors of torch; every operation of collrun.torch on CUDA tensors beside torch's gloo. test_python_devices.sh
# and test_torch_devices.sh have the same on the stand-ins.
. "$(dirname "$0")/lib.sh"
. "$here/python_lib.sh"
[ "${GPU:-}" = real ] || { skip "Python on a real GPU" "only with GPU=real (make test-gpu)"; done_testing; }
. "$here/gpu_lib.sh"

# gpu_job COUNT FILE ARGUMENTS...: on the group world on nccl. Ranks may share a GPU: NCCL takes each for a separate host.
gpu_job() {
    local i list=
    for ((i = 0; i < $1; i++)); do list+="${list:+, }$((i % gpus))"; done
    python_job "hosts: {nodes: [{name: here, transport: local, gpus: [$list]}]}
processes: {count: $1, gpus_per_process: 1}
groups: {world: {backend: nccl}}" "${@:2}"
}
job_env='NCCL_HOSTID: "{rank}"'
has() { "$python" -c "$1" 2>/dev/null; }

if has 'import numpy'; then
    runtime=$(ldconfig -p | grep -o '/.*/libcudart\.so\.1[0-9]$' | head -n 1)
    gpu_job 2 "$programs/oracle.py" device cuda "${runtime:-libcudart.so}" world
    is "every operation against numpy" "$code, $(grep -cE '\] [0-9]{3,} checks passed$' out)" "0, 2"
else
    skip "every operation against numpy" "$python has no numpy"
fi
for library in torch cupy; do
    if has "import $library"; then
        gpu_job 2 "$programs/cuda_arrays.py" $library
        is "arrays of $library" "$code, $(grep -c ': done$' out)" "0, 2"
    else
        skip "arrays of $library" "$python has no $library"
    fi
done
if PYTHONPATH=$home/lib/collrun/python has 'import torch, collrun._torch'; then
    gpu_job 2 "$programs/torch_oracle.py" collrun:// cuda
    is "every operation of collrun.torch beside gloo" "$code, $(grep -cE 'rank [01]: [0-9]{3} comparisons' out)" "0, 2"
else
    skip "every operation of collrun.torch" "it is not built for $python (make torch)"
fi
done_testing
