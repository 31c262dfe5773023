#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SIGKILL of a random rank at a random moment, repeatedly, on shm and tcp, with small and large messages. Measures the time until all
# other ranks have left their operation, until every process has ended, and until collrun has ended. Checks every run: the right culprit
# in collrun_error() of every rank and in the verdict, exit code 137, no hang, nothing left (processes, shared memory, files).
# Open MPI and MPICH, if installed, do the same beside it: until their last process has ended, and until the launcher has.
# KILLS (20): of each row. ROWS: "ranks:backend:bytes ...", bytes with KiB, MiB or GiB. SEED replays the moments. PEERS (8): kills of each peer.
# With KILLS=100 the ten rows are 1,000 kills.
set -u
. "$(dirname "$0")/lib.sh"
kills=${KILLS:-20} seed=${SEED:-$$}
rows=${ROWS:-2:shm:64KiB 4:shm:64KiB 8:shm:8 8:shm:64KiB 8:shm:64MiB 2:tcp:64KiB 4:tcp:64KiB 8:tcp:8 8:tcp:64KiB 8:tcp:64MiB}
workload_and_driver kill_latency
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
for peer in openmpi mpich; do
    command -v mpicc.$peer >/dev/null && mpicc.$peer -std=c11 -O2 -DPEER "$here/kill_latency.c" -o "$work/$peer"
done
gone() { awk '$1 == "gone" {print $3}' "$work/printed"; } # the median of the last row
echo "# $(machine); seed $seed"
failed=0
for row in $rows; do
    IFS=: read -r ranks backend bytes <<<"$row"
    cat >"$work/job.yaml" <<END
version: 1
processes: {count: $ranks}
groups: {world: {ranks: all, backend: $backend}}
workloads: [{plugin: ./kill_latency.so, params: {bytes: $bytes, file: "$work/slots"}}]
END
    echo "$ranks ranks, $backend, $bytes"
    "$work/driver" "$work/slots" "$ranks" "$kills" "$seed" collrun "$collrun" run "$work/job.yaml" >"$work/printed" || failed=1
    cat "$work/printed"
    [ "$row" != 8:shm:64KiB ] || mine=$(gone)
    remains=$(left)
    [ -z "$remains" ] || { echo "  LEFT BEHIND: $remains"; failed=1; }
done
# One size is enough: what a peer takes is in its launcher.
for peer in openmpi mpich; do
    [ -x "$work/$peer" ] && [ "${PEERS:-8}" -gt 0 ] || continue
    case $peer in
    openmpi) launcher=(mpirun.openmpi -np 8 --oversubscribe --mca mpi_yield_when_idle 1) ;;
    mpich) launcher=(mpiexec.hydra -np 8) ;;
    esac
    echo "8 ranks, $peer, 64KiB"
    TMPDIR=$work "$work/driver" "$work/slots" 8 "${PEERS:-8}" "$seed" peer "${launcher[@]}" "$work/$peer" "$work/slots" 65536 >"$work/printed"
    cat "$work/printed"
    [ -z "${mine:-}" ] || echo "  $(gone) ms until the last process is gone: $(awk "BEGIN {printf \"%.1f\", $(gone) / $mine}") times as long as collrun on shm"
done
exit $failed
