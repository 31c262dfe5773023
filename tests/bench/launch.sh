#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Launch time: RANKS processes start, form one group, allreduce once, exit; collrun beside mpirun (Open MPI) and mpiexec.hydra
# (MPICH), in turn, ROUNDS times, wall-clock medians and ratios. With more ranks than cores the peers get their options for it.
# usage: tests/bench/launch.sh [RANKS [ROUNDS]]        COLLRUN=path/to/collrun
set -eu
cd "$(dirname "$0")/../.."
ranks=${1:-64} rounds=${2:-7}
collrun=${COLLRUN:-build/release/bin/collrun}
prefix=$(cd "$(dirname "$collrun")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

cc -O2 -shared -fPIC -Iengine/include tests/bench/once.c -o "$work/once.so" -L"$prefix/lib" -lcollrun
cat >"$work/job.yaml" <<YAML
version: 1
processes: {count: $ranks}
workloads:
  - plugin: ./once.so
YAML
commands=("$collrun $work/job.yaml") names=(collrun)
if command -v mpirun.openmpi mpicc.openmpi >/dev/null; then
    mpicc.openmpi -O2 tests/bench/hello_mpi.c -o "$work/hello_openmpi"
    commands+=("mpirun.openmpi -np $ranks --oversubscribe --mca mpi_yield_when_idle 1 $work/hello_openmpi") names+=(openmpi)
fi
if command -v mpiexec.hydra mpicc.mpich >/dev/null; then
    mpicc.mpich -O2 tests/bench/hello_mpi.c -o "$work/hello_mpich"
    commands+=("mpiexec.hydra -np $ranks $work/hello_mpich") names+=(mpich)
fi

for ((r = 0; r < rounds; r++)); do
    for i in "${!commands[@]}"; do
        begin=$(date +%s%N)
        timeout 60 ${commands[$i]} >"$work/out" 2>&1 || { cat "$work/out" >&2; echo "${names[$i]} failed" >&2; exit 1; }
        echo $((($(date +%s%N) - begin) / 1000)) >>"$work/${names[$i]}.us"
    done
done

median() { sort -n "$1" | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }
mine=$(median "$work/collrun.us")
echo "# launch: $ranks ranks start, form a group, allreduce, exit; $(nproc) cores, $rounds rounds, wall-clock"
printf '%-10s %12s %12s %12s %12s\n' launcher 'median (s)' 'min (s)' 'max (s)' 'x collrun'
for name in "${names[@]}"; do
    sort -n "$work/$name.us" | awk -v name="$name" -v mine="$mine" '{v[NR] = $1}
        END {m = v[int((NR + 1) / 2)]; printf "%-10s %12.3f %12.3f %12.3f %12.1f\n", name, m / 1e6, v[1] / 1e6, v[NR] / 1e6, m / mine}'
done
