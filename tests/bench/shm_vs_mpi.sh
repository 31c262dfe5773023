#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The shm backend beside Open MPI and MPICH: the same calls, at the same time on this machine. All libraries are started at
# once and take turns of some milliseconds, ROUNDS for each operation and size, in which only one of them is awake: what
# disturbs the machine, or moves a virtual one to other cores, disturbs all of them alike. Each figure is the median over
# the rounds of the median call of the slowest rank, and the ratio is the median of the rounds' own ratios. Above 1.0
# collrun is faster. Ranks are bound to cores if there are enough.
#
#   tests/bench/shm_vs_mpi.sh [-n RANKS] [-r ROUNDS] [-b BUILD] [-k plain|heap] [-q] [-- loop options and operations]
#   tests/bench/shm_vs_mpi.sh -n 2 -r 15 -- -f 2 -t 20 allreduce
#
# -q runs the ranks at real-time priority, so that other work on the machine disturbs them less (as root; not with more
# ranks than cores). BUILD is a build directory such as build/release (default); MPIs that are not installed are left out.
set -eu
ranks=2 rounds=9 build=build/release kind=plain quiet=
while getopts n:r:b:k:q option; do
    case $option in
    n) ranks=$OPTARG ;;
    r) rounds=$OPTARG ;;
    b) build=$OPTARG ;;
    k) kind=$OPTARG ;;
    q) quiet='chrt -f 1' ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
. "$(dirname "$0")/lib.sh"
truncate -s 4096 "$work/turns"
end_turns() { printf '\377\377\377\277' | dd of="$work/turns" conv=notrunc status=none; } # no library waits for one that failed
trap 'end_turns; exit 1' INT TERM

flags="-std=c11 -O2 -D_GNU_SOURCE -pthread -I$root/engine/include -I$root/engine -I$root/tests/unit"
cc $flags -O3 -o "$work/bench-collrun" "$here/shm_bench_collrun.c" "$here/shm_bench_loop.c" \
    "$root"/tests/unit/backend_rig.c "$root"/tests/unit/rig_*.c "$root"/engine/reduce*.c "$root"/engine/base/names.c -ldl -lm

cores=$(nproc)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
crowd="--bind-to core" bind="-bind-to core"
[ "$ranks" -le "$cores" ] || crowd="--oversubscribe --mca mpi_yield_when_idle 1" bind=
libraries=collrun
for mpi in openmpi mpich; do
    if command -v mpicc.$mpi >/dev/null; then
        mpicc.$mpi -O2 -D_GNU_SOURCE -o "$work/bench-$mpi" "$here/shm_bench_mpi.c" \
            "$here/shm_bench_loop.c"
        libraries="$libraries $mpi"
    fi
done

turns="-r $rounds -T $work/turns -c $(echo $libraries | wc -w)"
run() {
    library=$1
    shift
    case $library in
    collrun) $quiet "$work/bench-collrun" "$build/lib/collrun/backends/libcollrun_shm.so" "$ranks" "$kind" "$@" ;;
    openmpi) mpirun.openmpi $crowd -np "$ranks" $quiet "$work/bench-openmpi" "$@" ;;
    mpich) mpiexec.hydra $bind -np "$ranks" $quiet "$work/bench-mpich" "$@" ;;
    esac
}

index=0
for library in $libraries; do
    { if run "$library" $turns -i "$index" "$@"; then touch "$work/$library.done"; else end_turns; fi; } </dev/null | sed "s/^/$library /" >"$work/$library" &
    index=$((index + 1))
done
wait
for library in $libraries; do
    [ -e "$work/$library.done" ] || { echo "$library failed" >&2; exit 1; }
done

awk -v libraries="$libraries" -v rounds="$rounds" '
function median(list, n,   i, j, t) {
    for (i = 2; i <= n; i++)
        for (j = i; j > 1 && list[j - 1] > list[j]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
    return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
}
{
    key = $3 " " $4
    us[$1, $2, key] = $5
    if (!(key in seen)) { seen[key] = 1; keys[++nkeys] = key }
}
END {
    n = split(libraries, library, " ")
    printf "%-15s %10s %12s", "operation", "bytes", "collrun us"
    for (l = 2; l <= n; l++) printf " %12s %7s", library[l] " us", "ratio"
    printf "\n"
    for (k = 1; k <= nkeys; k++) {
        split(keys[k], part, " ")
        for (l = 1; l <= n; l++) {
            for (r = 0; r < rounds; r++) {
                list[r + 1] = us[library[l], r, keys[k]]
                ratios[r + 1] = us[library[l], r, keys[k]] / us["collrun", r, keys[k]]
            }
            if (l == 1) printf "%-15s %10d %12.3f", part[1], part[2], median(list, rounds)
            else { m = median(list, rounds); printf " %12.3f %7.2f", m, median(ratios, rounds) }
        }
        printf "\n"
    }
}' $(for library in $libraries; do echo "$work/$library"; done)
