#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What it adds to a call of MPI that it is recorded (observe), in ns: tap_cost.c under collrun, with the MPIs of peers.sh that collrun starts.
# usage: tests/bench/tap_cost.sh [MPI...]        mpich and impi; ROUNDS (395): of each case, each of 2,000 calls with and without; those that other programs disturbed are left out
set -u
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/mpi.sh"
echo "# $(machine)"
for mpi in ${*:-mpich impi}; do
    mpi_has "$mpi" || { echo "$mpi is not installed: tests/bench/peers.sh mpi" >&2; continue; }
    mpi_cc "$mpi" "$work/tap_cost" "$root/tests/bench/tap_cost.c" -I"$root/tests" -lm -ldl || exit 1
    cat >"$work/job.yaml" <<END
version: 1
processes: {count: 2}
env: {set: {LD_LIBRARY_PATH: '$(mpi_folder "$mpi")/lib'}}
workloads: [{command: ['$work/tap_cost', '${ROUNDS:-395}']}]
END
    echo "# $(mpi_version "$mpi"), 2 ranks on shm"
    "$collrun" "$work/job.yaml" | sed 's/^\[0\] //'
done
