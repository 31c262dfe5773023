#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What Python adds to an allreduce of 8 bytes: a C program and a Python program, in turn, on one rank, where the call does not wait.
# usage: PYTHON=python3 ROUNDS=15 CALLS=50000 tests/bench/python_cost.sh       PYTHON: with numpy its arrays are measured too
set -u
. "$(dirname "$0")/lib.sh"
python=$(command -v "${PYTHON:-python3}") rounds=${ROUNDS:-15} calls=${CALLS:-50000}
cc -std=c11 -D_GNU_SOURCE -O2 -I"$root/engine/include" "$here/python_cost.c" -o "$work/c" -L"$home/lib" -lcollrun -Wl,-rpath,"$home/lib" || exit 1
# rank COMMAND: one job of one rank; prints its figure.
rank() {
    printf 'version: 1\nprocesses: {count: 1}\nenv: {set: {OMP_NUM_THREADS: "1"}}\nworkloads: [{command: [%s]}]\n' "$1" >"$work/job.yaml"
    "$collrun" "$work/job.yaml" | sed 's/^\[0\] //'
}
# middle FILE: the median of the second column minus the first, and the interval that holds it with 95 % confidence (order statistics).
middle() {
    awk '{ print $2 - $1 }' "$1" | sort -g | awk '{ v[NR] = $1 } END {
        k = int(NR / 2 - 0.98 * sqrt(NR)); k = k < 1 ? 1 : k
        printf "%.3f [%.3f, %.3f] us over C (%d rounds)\n", v[int((NR + 1) / 2)], v[k], v[NR + 1 - k], NR }'
}
echo "# $(machine); $("$python" --version)"
kinds=array
"$python" -c 'import numpy' 2>/dev/null && kinds="array numpy"
for ((i = 0; i < rounds; i++)); do
    for kind in $kinds; do
        echo "$(rank "$work/c, '$calls'") $(rank "$python, $here/python_cost.py, $kind, '$calls'")" >>"$work/$kind"
    done
done
for kind in $kinds; do
    [ "$(awk 'NF != 2' "$work/$kind" | wc -l)" = 0 ] || { echo "a job failed" >&2; exit 1; }
    echo "allreduce of 8 bytes, $kind: $(middle "$work/$kind")"
done
