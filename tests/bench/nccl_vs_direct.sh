#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# NCCL called directly and through collrun in one process (nccl_vs_direct.c), on all GPUs of this machine, one rank each; with
# nonblocking communicators, collrun's default, and with blocking ones. Before that, and on a machine without a GPU instead of it,
# the same on libraries that do nothing (nccl_nothing.c): what is left is collrun's own part of a call. Then a message there and back
# between two ranks: on those, which leaves the round trip to the coordinator, and on the stand-ins of tests/fake without their pauses;
# both also with messages: direct, which has no such round trip.
#   STANDIN=1  run on the stand-ins of tests/fake: shows that it works; its figures mean nothing
#   RANKS=2    instead of one per GPU; more than GPUs share them: NCCL takes each rank for a separate host
#   ONLY=gpu   without the libraries that do nothing, and the stand-ins
#   MAX=128MiB ITERS=500
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
build=${BUILD:-$top/build/release}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cc -std=c11 -D_GNU_SOURCE -O2 -shared -fPIC -pthread -I"$top" -I"$top/engine/include" "$top/tests/bench/nccl_vs_direct.c" \
    "$top/backends/nccl/library.c" -o "$tmp/nccl_vs_direct.so" -L"$build/lib" -lcollrun -ldl
cc -std=c11 -O2 -shared -fPIC "$top/tests/bench/nccl_nothing.c" -o "$tmp/nothing.so"

compare() { # GPUS MOST_BYTES [MESSAGES [OPTION]]
    local blocking
    for blocking in 0 ${3:-1}; do
        [ "$blocking" != true ] || continue
        cat >"$tmp/job.yaml" <<END
version: 1
processes: {count: $1, gpus_per_process: 1}
$(share_gpus "$1")
groups:
  host: {backend: shm}
  gpu: {backend: nccl, options: {NCCL_COMM_BLOCKING: $blocking${4:+, messages: $4}}}
timeouts: {run: 10m}
workloads:
  - plugin: ./nccl_vs_direct.so
    params: {iters: ${ITERS:-500}, max: $2, blocking: $blocking, messages: ${3:-false}, port_file: $tmp/port}
END
        echo "# $1 rank$([ "$1" = 1 ] || echo s), $([ "$blocking" = 1 ] && echo blocking || echo nonblocking) communicators, float32 $([ -n "${3:-}" ] && echo "messages, ${4:-matched}" || echo sum)"
        "$build/bin/collrun" "$tmp/job.yaml" | sed 's/^\[0\] //'
    done
}

# shellcheck source=tests/bench/nccl_lib.sh
. "$top/tests/bench/nccl_lib.sh"
find_gpus
if [ -n "${STANDIN:-}" ]; then
    compare 2 "${MAX:-64KiB}"
    exit
fi
without_gpu() {
    local gpus=2
    echo "# on libraries that do nothing: collrun's own part"
    LD_LIBRARY_PATH=$build/tests/fake COLLRUN_LIBCUDART=$tmp/nothing.so COLLRUN_LIBNCCL=$tmp/nothing.so compare 1 64
    echo "# a message there and back, on libraries that do nothing"
    LD_LIBRARY_PATH=$build/tests/fake COLLRUN_LIBCUDART=$tmp/nothing.so COLLRUN_LIBNCCL=$tmp/nothing.so compare 2 1MiB true
    LD_LIBRARY_PATH=$build/tests/fake COLLRUN_LIBCUDART=$tmp/nothing.so COLLRUN_LIBNCCL=$tmp/nothing.so compare 2 1MiB true direct
    echo "# the same on the stand-ins"
    ITERS=100 LD_LIBRARY_PATH=$build/tests/fake FAKE_CUDA_DELAY_US=0 compare 2 1MiB true
    ITERS=100 LD_LIBRARY_PATH=$build/tests/fake FAKE_CUDA_DELAY_US=0 compare 2 1MiB true direct
}
[ "${ONLY:-}" = gpu ] || without_gpu
[ "$gpus" -gt 0 ] || exit 0
echo "# on NCCL"
ranks=${RANKS:-$gpus}
[ "$ranks" -le "$gpus" ] || echo "# the ranks share a GPU, which takes turns between them: both ways pay that"
compare "$ranks" "${MAX:-128MiB}"
if [ "$ranks" -ge 2 ]; then
    compare 2 1MiB true
    compare 2 1MiB true direct
fi
