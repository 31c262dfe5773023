#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What --trace costs at 100,000 operations a second, 50,000 of each of 2 ranks: the time of a job that computes between small allreduces, with and without a
# trace, one after the other (trace_cost.c); and the CPU time of agent and runner, in per cent of the time. The interval is that of the median.
# RANKS (2), PAIRS (15): of jobs, OPERATIONS (60000): of each rank, PERIOD_NS (20000)
set -u
. "$(dirname "$0")/lib.sh"
cc -std=c11 -D_GNU_SOURCE -O2 -shared -fPIC -I"$root/engine/include" "$here/trace_cost.c" -o "$work/trace_cost.so" -L"$home/lib" -lcollrun || exit 1
operations=${OPERATIONS:-60000} pairs=${PAIRS:-15}
cat >"$work/job.yaml" <<END
version: 1
processes: {count: ${RANKS:-2}}
groups: {world: {ranks: all, backend: shm}}
logging: {console: {label: ""}}
workloads: [{plugin: ./trace_cost.so, params: {period_ns: ${PERIOD_NS:-20000}, operations: $operations}}]
END
read -r _ _ spins < <("$collrun" "$work/job.yaml")
# shellcheck disable=SC2086
once() { "$collrun" "$work/job.yaml" --set "workloads[0].params.spins=$spins" "$@" 2>>"$work/err"; }
for ((i = 0; i < pairs; i++)); do
    [ $((i % 2)) = 1 ] || off=$(once)
    on=$(once --trace "$work/trace.json")
    [ $((i % 2)) = 0 ] || off=$(once)
    echo "$off $on"
done >"$work/pairs"
echo "# $(machine)"
echo "# ${RANKS:-2} ranks on shm, $operations allreduces of 4 bytes each, $pairs pairs of jobs"
python3 - "$work/pairs" "$operations" <<'END'
import statistics
import sys

rows = [list(map(int, line.split())) for line in open(sys.argv[1])]
operations = int(sys.argv[2])


def interval(values):
    """Of the median, at least 95 %: order statistics."""
    values = sorted(values)
    n = len(values)
    from math import comb
    k = 0
    while sum(comb(n, i) for i in range(k + 2)) / 2**n <= 0.025:
        k += 1
    return statistics.median(values), values[k], values[n - 1 - k]


def show(name, values, unit="%"):
    middle, low, high = interval(values)
    print(f"{name:<46} {middle:8.3f} [{low:.3f}, {high:.3f}] {unit}")


show("operations/s of each rank, no trace", [operations / r[0] * 1e9 for r in rows], "")
show("more time with a trace", [100 * (r[3] / r[0] - 1) for r in rows])
show("more CPU time of agent and runner, of the time", [100 * (r[4] - r[1]) / r[3] for r in rows])
END
if [ -s "$work/err" ]; then sort "$work/err" | uniq -c; else echo "no operation is missing"; fi
