#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SIGKILL of a random rank at a random moment, over and over, on shm and gloo, with small and large messages: how long until all other ranks
# are out of their operation, until every process is gone, until collrun has said why and ended. Every run is held to: the right culprit in
# everybody's collrun_error() and in the verdict, exit code 137, no hang, nothing left (processes, shared memory, files).
# Open MPI and MPICH, where they are, do the same beside it: until their last process is gone, and until the launcher has ended.
# KILLS (20): of each row. ROWS: "ranks:backend:bytes ...", bytes with KiB, MiB or GiB. SEED replays the moments. PEERS (8): kills of each peer.
# With KILLS=100 the ten rows are 1,000 kills.
set -u
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
collrun=$(realpath "${COLLRUN:-$top/build/release/bin/collrun}")
home=$(cd "$(dirname "$collrun")/.." && pwd)
kills=${KILLS:-20} seed=${SEED:-$$}
rows=${ROWS:-2:shm:64KiB 4:shm:64KiB 8:shm:8 8:shm:64KiB 8:shm:64MiB 2:gloo:64KiB 4:gloo:64KiB 8:gloo:8 8:gloo:64KiB 8:gloo:64MiB}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cc -std=c11 -D_GNU_SOURCE -O2 -shared -fPIC -I"$top/engine/include" "$here/kill_latency.c" -o "$tmp/kill_latency.so" -L"$home/lib" -lcollrun || exit 1
cc -std=c11 -O2 -DDRIVER "$here/kill_latency.c" -o "$tmp/driver" || exit 1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
for peer in openmpi mpich; do
    command -v mpicc.$peer >/dev/null && mpicc.$peer -std=c11 -O2 -DPEER "$here/kill_latency.c" -o "$tmp/$peer"
done
mkdir "$tmp/tmpdir" "$tmp/runtime"
export TMPDIR=$tmp/tmpdir XDG_RUNTIME_DIR=$tmp/runtime

left() {
    find "$tmp/tmpdir" "$tmp/runtime" -mindepth 1
    find /dev/shm -mindepth 1 -newer "$tmp/driver"
    grep -o '@[^ ]*collrun[^ ]*' /proc/net/unix
}
gone() { awk '$1 == "gone" {print $3}' "$tmp/said"; } # the median of the last row
echo "# $(nproc) cores, $(uname -sr), load $(cut -d' ' -f1 /proc/loadavg); seed $seed"
failed=0
for row in $rows; do
    IFS=: read -r ranks backend bytes <<<"$row"
    cat >"$tmp/job.yaml" <<END
version: 1
processes: {count: $ranks}
groups: {world: {ranks: all, backend: $backend}}
workloads: [{plugin: ./kill_latency.so, params: {bytes: $bytes, file: "$tmp/slots"}}]
END
    echo "$ranks ranks, $backend, $bytes"
    "$tmp/driver" "$tmp/slots" "$ranks" "$kills" "$seed" collrun "$collrun" run "$tmp/job.yaml" >"$tmp/said" || failed=1
    cat "$tmp/said"
    [ "$row" != 8:shm:64KiB ] || mine=$(gone)
    remains=$(left)
    [ -z "$remains" ] || { echo "  LEFT BEHIND: $remains"; failed=1; }
done
# One size is enough: what a peer takes is in its launcher.
for peer in openmpi mpich; do
    [ -x "$tmp/$peer" ] && [ "${PEERS:-8}" -gt 0 ] || continue
    case $peer in
    openmpi) launcher=(mpirun.openmpi -np 8 --oversubscribe --mca mpi_yield_when_idle 1) ;;
    mpich) launcher=(mpiexec.hydra -np 8) ;;
    esac
    echo "8 ranks, $peer, 64KiB"
    TMPDIR=$tmp "$tmp/driver" "$tmp/slots" 8 "${PEERS:-8}" "$seed" peer "${launcher[@]}" "$tmp/$peer" "$tmp/slots" 65536 >"$tmp/said"
    cat "$tmp/said"
    [ -z "${mine:-}" ] || echo "  $(gone) ms until the last process is gone: $(awk "BEGIN {printf \"%.1f\", $(gone) / $mine}") times as long as collrun on shm"
done
exit $failed
