# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
#
# Sourced after lib.sh: the GPU workload (tests/gpu/workload) as gpu_test.so, on `gpus` GPUs: of the stand-in libraries of tests/fake,
# or with GPU=real (make test-gpu) of this machine. Without any, the test ends, with the reason.
fake=${BUILD:-$top/build/release}/tests/fake
gpus=${FAKE_CUDA_DEVICES:-8}
if [ "${GPU:-}" = real ]; then
    gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
    [ "$gpus" -gt 0 ] || gpus=$(find /proc/driver/nvidia/gpus -mindepth 1 -maxdepth 1 2>/dev/null | wc -l)
    [ "$gpus" -gt 0 ] || { skip "cases on a real GPU" "there is no GPU here (nvidia-smi -L lists none)"; done_testing; }
else
    export LD_LIBRARY_PATH=$fake${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
plugin "$top/tests/gpu/workload" "$tmp/gpu_test.so" -ldl || { echo "Bail out! the GPU workload does not compile"; exit 1; }
