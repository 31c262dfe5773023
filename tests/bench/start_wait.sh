#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# collrun_start + collrun_wait beside the blocking call: an allreduce on shm, 8 B to 16 MiB, both in turn (start_wait.c).
# usage: [RANKS=2] [WINDOW_MS=4] tests/bench/start_wait.sh [COLLRUN...]     COLLRUN: path/to/bin/collrun of a build
set -u
. "$(dirname "$0")/lib.sh"
[ $# -gt 0 ] || set -- "$collrun"
cc -std=c11 -D_GNU_SOURCE -O2 -shared -fPIC -I"$root/engine/include" "$here/start_wait.c" -o "$work/start_wait.so" -L"$home/lib" -lcollrun || exit 1
cat >"$work/job.yaml" <<END
version: 1
processes: {count: ${RANKS:-2}}
groups: {world: {ranks: all, backend: shm}}
workloads: [{plugin: ./start_wait.so, params: {window_ms: ${WINDOW_MS:-4}}}]
END
echo "# $(machine)"
for build; do
    [ $# = 1 ] || echo "$build"
    "$build" --quiet "$work/job.yaml" 2>&1 | sed 's/^\[0\] //'
done
