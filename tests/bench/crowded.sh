#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks that do not have their cores to themselves: calls beside a job of nice 19 on each core, bound and not; the CPU time of ranks that
# wait; computing with twice as many ranks as cores. Several builds are measured in turn, ROUNDS (3) times each.
# usage: tests/bench/crowded.sh [COLLRUN...]     COLLRUN: path/to/bin/collrun of a build
#        BACKENDS="shm tcp"  WINDOW_MS=200  PIECES=1000
set -u
. "$(dirname "$0")/lib.sh"
[ $# -gt 0 ] || set -- "$collrun"
cc -std=c11 -D_GNU_SOURCE -O2 -shared -fPIC -I"$root/engine/include" "$here/crowded.c" -o "$work/crowded.so" -L"$home/lib" -lcollrun || exit 1
neighbours=
trap 'kill $neighbours 2>/dev/null; rm -rf "$work"' EXIT
cores=$(nproc)

# row WHAT RANKS BACKEND BIND MODE BUILD...
row() {
    local what=$1 ranks=$2 backend=$3 bind=$4 mode=$5
    shift 5
    cat >"$work/job.yaml" <<END
version: 1
processes: {count: $ranks, bind: $bind}
groups: {world: {ranks: all, backend: $backend}}
workloads: [{plugin: ./crowded.so, params: {mode: $mode, window_ms: ${WINDOW_MS:-200}, pieces: ${PIECES:-1000}}}]
END
    for round in $(seq "${ROUNDS:-3}"); do
        for build; do
            echo "$what, round $round:$([ $# = 1 ] || echo " $build:") $("$build" --quiet "$work/job.yaml" 2>&1 | sed 's/^\[0\] //')"
        done
    done
}
echo "# $(machine)"
row "$cores ranks, bound" "$cores" shm core calls "$@"
row "$cores ranks, not bound" "$cores" shm none calls "$@"
for _ in $(seq "$cores"); do
    # The kernel shares out CPUs between sessions first (autogroup), and each of them has a nice value, too.
    setsid nice -n 19 sh -c 'echo 19 2>/dev/null >/proc/self/autogroup; while :; do :; done' &
    neighbours="$neighbours $!"
done
row "$cores ranks, bound, neighbours" "$cores" shm core calls "$@"
row "$cores ranks, not bound, neighbours" "$cores" shm none calls "$@"
# shellcheck disable=SC2086
kill $neighbours
wait 2>/dev/null
neighbours=
for backend in ${BACKENDS:-shm tcp}; do
    row "2 ranks, $backend" 2 "$backend" none wait "$@"
    row "$((2 * cores)) ranks, $backend" "$((2 * cores))" "$backend" none wait "$@"
    row "$cores ranks, $backend" "$cores" "$backend" none compute "$@"
    row "$((2 * cores)) ranks, $backend" "$((2 * cores))" "$backend" none compute "$@"
done
