#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The measurements of tests/bench still build and run, with the smallest amounts. Their figures are not looked at.
. "$(dirname "$0")/lib.sh"
case $home in
*asan* | *tsan*)
    skip "measurements" "a sanitized build is not measured"
    done_testing
    ;;
esac
if [ ! -d "$home/obj" ]; then
    skip "measurements" "they need the objects of a build"
    done_testing
fi
bench=$top/tests/bench

# measures SCRIPT ARGUMENTS...: it ends with 0, and prints a figure. What other jobs of this machine have open meanwhile looks left
# behind to some measurements; test_kill.sh tests that nothing is.
measures() {
    timeout -k 5 $((4 * limit)) "$bench/$1.sh" "${@:2}" >out 2>err </dev/null
    code=$?
    if grep -q 'LEFT BEHIND' out && grep -q ' 0 of them with something wrong' out; then
        code=0
    fi
    is "$1 runs" "$code $(grep -cE '[0-9]\.[0-9]' out | sed 's/[1-9][0-9]*/figures/')" "0 figures"
}

measures call_overhead "$home"
ROUNDS=3 measures record_cost "$home"
PAIRS=9 WINDOW_MS=10 measures audit_cost
measures launch 2 1
PEERS=$tmp/none measures vs_mpi -n 2 -r 2 -l 64 -m 64 -t 1 -o "barrier allreduce start"
measures gloo_vs_raw -n 2 -r 9 -f 64 -m 64 -b "$home" allreduce
MB=1 measures output
JOBS=2 ROWS=2:shm measures short_jobs
ROUNDS=1 ROWS=2:shm HELD=3 measures group_cost
ROUNDS=1 BACKENDS=shm WINDOW_MS=2 PIECES=5 measures crowded
WINDOW_MS=1 measures start_wait
KILLS=1 PEERS=0 ROWS=2:shm:64KiB measures kill_latency
ITERS=5 measures nccl_vs_direct
if [ -f "$home/lib/collrun/python/collrun/_collrun.abi3.so" ]; then
    ROUNDS=2 CALLS=100 measures python_cost
else
    skip "python_cost" "the package is not built: Python.h is missing (python3-dev)"
fi

# The table of vs_mpi: of 9 rounds, the peer takes twice as long in all but one.
printf 'results %s/times\nrow allreduce 8\n' "$tmp" >plan
for round in 0 1 2 3 4 5 6 7 8; do
    echo "$round 0 0.5" >>times.0
    echo "$round 0 $([ $round = 4 ] && echo 0.25 || echo 1)" >>times.1
done
"$bench/ratios.py" plan 1 shm openmpi >out 2>err
is "a row has medians, the ratio, and the interval without the outermost values" \
    "$(sed -n 2p out | tr -s ' ')" "allreduce 8 0.500 1.000 | 2.00 2.00-2.00 openmpi"
is "the summary has the median and the worst row" "$(grep -c 'median 2.00, worst 2.00 (allreduce 8); 0 rows below' out)" 1
done_testing
