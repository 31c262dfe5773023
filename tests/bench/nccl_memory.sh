#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The memory that a rank takes of its GPU, step by step: CUDA itself, each communicator of NCCL (nccl_memory.c).
#   RANKS=2    on fewer GPUs, they share them: NCCL takes each rank for a separate host
#   STANDIN=1  on the stand-ins of tests/fake: shows that it works; its figures mean nothing
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
build=${BUILD:-$top/build/release}
ranks=${RANKS:-2}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cc -std=c11 -D_GNU_SOURCE -O2 -shared -fPIC -pthread -I"$top/engine/include" "$top/tests/bench/nccl_memory.c" -o "$tmp/nccl_memory.so" \
    -L"$build/lib" -lcollrun -ldl
# shellcheck source=tests/bench/nccl_lib.sh
. "$top/tests/bench/nccl_lib.sh"
find_gpus
[ "$gpus" -gt 0 ] || exit 0
printf '%-44s %10s %10s %10s\n' "# of each rank" ms MiB "MiB more"
memory() { # TITLE GROUP GROUPS
    cat >"$tmp/job.yaml" <<END
version: 1
processes: {count: $ranks, gpus_per_process: 1}
$(share_gpus "$ranks")
groups: {host: {backend: shm}$3}
timeouts: {run: 5m}
workloads:
  - {plugin: ./nccl_memory.so, params: {title: "$1", group: $2, per_gpu: $(((ranks + gpus - 1) / gpus))}}
END
    "$build/bin/collrun" "$tmp/job.yaml" | sed 's/^\[0\] //'
}
memory "CUDA alone: world, not used yet" world ''
memory "one group" a ', a: {backend: nccl}'
memory "two groups" a ', a: {backend: nccl}, b: {backend: nccl}'
memory "one group with messages: direct" a ', a: {backend: nccl, options: {messages: direct}}'
