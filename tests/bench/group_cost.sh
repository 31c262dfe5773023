#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a group costs: the time of a split, a create and a destroy, and what 1,000 open groups take of each rank. Several builds are
# measured in turn, ROUNDS (3) times each, so that figures before and after a change come from one run. Beside it, MPI_Comm_split and
# MPI_Comm_dup (as create) of the MPIs that `make bench-peers` has installed.
# usage: tests/bench/group_cost.sh [COLLRUN...]     COLLRUN: path/to/bin/collrun of a build
#        MPIS="openmpi mpich impi" ROWS="ranks:backend ..."  HELD=groups open at the same time (1000; 0: none) HELD_ROWS="ranks:backend ..."
set -u
. "$(dirname "$0")/lib.sh"
. "$here/mpi.sh"
[ $# -gt 0 ] || set -- "$collrun"
ulimit -n "$(ulimit -Hn)"

job() { # RANKS BACKEND PARAMS
    cat >"$work/job.yaml" <<END
version: 1
processes: {count: $1}
groups: {world: {ranks: all, backend: $2}}
workloads: [{plugin: ./group_cost.so, params: {$3}}]
END
}
# all COLLRUN... : the job on each build
all() {
    for build; do
        [ $# = 1 ] || echo "  $build"
        "$build" --quiet "$work/job.yaml" 2>&1 | sed 's/^\[0\] /    /'
    done
}
# peers RANKS ROUNDS HELD: the MPIs on shared memory. MPICH needs a core for each rank.
peers() {
    for mpi in $mpis; do
        [ "$mpi" != mpich ] || [ "$1" -le "$(nproc)" ] || continue
        echo "  $(mpi_version "$mpi")"
        mpi_run "$mpi" "$1" shm "$work/group_cost-$mpi" "$2" "$3" 2>&1 | sed 's/^/    /'
    done
}

cc -std=c11 -D_GNU_SOURCE -O2 -shared -fPIC -I"$root/engine/include" "$here/group_cost.c" -o "$work/group_cost.so" \
    -L"$home/lib" -lcollrun || exit 1
mpis=
for mpi in ${MPIS-openmpi mpich impi}; do
    mpi_has "$mpi" && mpi_cc "$mpi" "$work/group_cost-$mpi" "$here/group_cost.c" -DPEER && mpis="$mpis $mpi"
done
echo "# $(machine)"
for row in ${ROWS:-2:shm 4:shm 8:shm 4:gloo}; do
    IFS=: read -r ranks backend <<<"$row"
    for round in $(seq "${ROUNDS:-3}"); do
        echo "$ranks ranks, $backend, round $round"
        job "$ranks" "$backend" "rounds: ${GROUPS_TIMED:-200}"
        all "$@"
        [ "$backend" != shm ] || peers "$ranks" "${GROUPS_TIMED:-200}" 0
    done
done
[ "${HELD:-1000}" = 0 ] && exit 0
for row in ${HELD_ROWS:-8:shm 4:tcp 4:gloo}; do
    IFS=: read -r ranks backend <<<"$row"
    echo "$ranks ranks, $backend"
    job "$ranks" "$backend" "held: ${HELD:-1000}"
    all "$@"
    [ "$backend" != shm ] || peers "$ranks" 0 "${HELD:-1000}"
done
