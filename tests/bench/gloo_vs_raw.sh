#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The Gloo backend beside Gloo's own operations, over loopback, in the same processes, on the same buffers, and in random order. The
# algorithms are the same; the backend runs them over collrun's transport, Gloo over its own. Every round measures Gloo, the backend and
# Gloo again. For each operation and size: the median times, then the median of the rounds' ratios (the backend's time by Gloo's; below
# 1.0 the backend is faster), from where to where the true median lies (paired.h), the ratio of the processor time of all ranks, and the
# noise: how far such an interval of Gloo against Gloo reaches from 1. "within": the interval ends at 1.02 or below; "ABOVE": it begins
# above; "open": neither, after as many rounds as there may be (ROUNDS, or SECONDS). A row ends as soon as it is not open, so the noise
# is that of few rounds in most.
#
#   tests/bench/gloo_vs_raw.sh [-n "2 4"] [-r ROUNDS] [-s SECONDS] [-f MIN_BYTES] [-m MAX_BYTES] [-b BUILD] [-q] [-a] [-d] [operation...]
#
# -q runs the ranks at nice -20, so that other work on the machine disturbs them less (as root).
# -a keeps every core awake with a loop that has time only when nothing else wants the core (SCHED_IDLE), as other ranks would. In a
# virtual machine a core that sleeps wakes up late, now more and now less: a call of 42 us takes 60 to 80.
# The ranks run as SCHED_BATCH: a thread that is woken does not interrupt the one that runs. Else Gloo's thread interrupts the caller while it
# holds the lock of a connection, and spins for a time slice of 3 ms; which of the contexts has that is luck, and hides the rest.
# -d leaves them as they are.
set -eu
ranks='2 4' rounds=10687 seconds=20 least=8 most=67108864 build=build/release quiet='' awake='' policy='chrt --batch 0'
while getopts n:r:s:f:m:b:qad option; do
    case $option in
    n) ranks=$OPTARG ;;
    r) rounds=$OPTARG ;;
    s) seconds=$OPTARG ;;
    f) least=$OPTARG ;;
    m) most=$OPTARG ;;
    b) build=$OPTARG ;;
    q) quiet='nice -n -20' ;;
    a) awake=yes ;;
    d) policy= ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
. "$(dirname "$0")/lib.sh"

include="-I$root/engine/include -I$root/engine -I$root/tests/unit -I$here"
for source in "$here/gloo_bench.c" "$root/tests/unit/backend_harness.c" "$root"/tests/unit/harness_*.c; do
    cc -std=c11 -O3 -D_GNU_SOURCE -pthread $include -c "$source" -o "$work/$(basename "$source").o"
done
c++ -std=c++17 -O2 -pthread $include -c "$here/gloo_bench_raw.cc" -o "$work/raw.o"
c++ -pthread -o "$work/bench" "$work"/*.o $(harness_libraries) -lgloo -ldl -lm

loops=
for core in ${awake:+$(seq 0 $(($(nproc) - 1)))}; do
    taskset -c "$core" chrt --idle 0 sh -c 'while :; do :; done' &
    loops="$loops $!"
done
trap 'kill $loops 2>/dev/null || true; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

for n in $ranks; do
    echo "# $n ranks on $(nproc) cores, $rounds rounds, float32"
    $quiet $policy "$work/bench" "$build/lib/collrun/backends/libcollrun_gloo.so" "$n" "$rounds" "$seconds" "$least" "$most" "$@"
done
