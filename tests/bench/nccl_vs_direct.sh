#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# NCCL called directly and through collrun in one process (nccl_vs_direct.c), on all GPUs of this machine, one rank each; with
# nonblocking communicators, collrun's default, and with blocking ones. Without a GPU it says so and measures nothing.
#   STANDIN=1  run on the stand-ins of tests/fake: shows that it works; its figures mean nothing
#   MAX=128MiB ITERS=200
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
build=${BUILD:-$top/build/release}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
if [ -n "${STANDIN:-}" ]; then
    gpus=2
    export LD_LIBRARY_PATH=$build/tests/fake
    echo "# on the stand-ins: no figure below means anything"
else
    gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU') || true
    if [ "${gpus:-0}" = 0 ]; then
        echo "# there is no GPU on this machine (nvidia-smi -L lists none): nothing is measured"
        exit 0
    fi
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | sort | uniq -c | sed 's/^/# /'
fi
echo "# $(nproc) cores, load $(cut -d' ' -f1-3 /proc/loadavg), $(date -u +%F)"
cc -std=c11 -D_GNU_SOURCE -O2 -shared -fPIC -pthread -I"$top" -I"$top/engine/include" "$top/tests/bench/nccl_vs_direct.c" \
    "$top/backends/nccl/library.c" -o "$tmp/nccl_vs_direct.so" -L"$build/lib" -lcollrun -ldl
for blocking in 0 1; do
    cat >"$tmp/job.yaml" <<END
version: 1
processes: {count: $gpus, gpus_per_process: 1}
groups:
  host: {backend: shm}
  gpu: {backend: nccl, options: {NCCL_COMM_BLOCKING: "$blocking"}}
timeouts: {run: 10m}
workloads:
  - plugin: ./nccl_vs_direct.so
    params: {iters: ${ITERS:-200}, max: ${MAX:-128MiB}, blocking: $blocking}
END
    echo "# $gpus rank$([ "$gpus" = 1 ] || echo s), $([ $blocking = 1 ] && echo blocking || echo nonblocking) communicators, float32 sum"
    "$build/bin/collrun" "$tmp/job.yaml" | sed 's/^\[0\] //'
done
