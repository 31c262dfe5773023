#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Allreduce between two ranks on one machine: collrun's shm, tcp and gloo beside Ray's collective library between two actors and torch's
# process group, both on Gloo; in one run, in turn, as vs_mpi.sh does. Ray and torch are from PyPI (make bench-peers PEER=python, 6 GB).
# usage: tests/bench/vs_ray_torch.sh [options of vs_mpi.sh]
exec "$(dirname "$0")/vs_mpi.sh" -w lo -c "shm tcp:local=tcp gloo" -p "ray torch" -o allreduce "$@"
