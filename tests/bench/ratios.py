#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of vs_mpi.sh: ratios.py PLAN OURS LIBRARY...

Reads the plan and the results of the measuring loop (loop.h). The first OURS libraries are collrun's, the others are the peers. Per row:
the median time of each library, in microseconds; for each of collrun's, the ratio to the peer whose median is the best. A ratio is the
median of the rounds' ratios, with the interval between order statistics that holds the true median with 95 % confidence, for any
distribution (the inverse of the sign test). It needs 6 rounds.
"""
import sys
from math import comb
from statistics import median

LEVEL, ENOUGH = 0.95, 0.95  # confidence; a ratio below ENOUGH is counted as behind


def read_plan(path):
    rows, prefix = [], ""
    for line in open(path):
        key, *words = line.split()
        if key == "row":
            rows.append((words[0], int(words[1])))
        elif key == "results":
            prefix = words[0]
    return rows, prefix


def read_results(path):
    """row -> round -> microseconds"""
    times = {}
    for line in open(path):
        number, row, us = line.split()
        times.setdefault(int(row), {})[int(number)] = float(us)
    return times


def interval(values):
    """The bounds of the true median, or None if there are too few values."""
    v, n, tail, cut = sorted(values), len(values), 0, 0
    while cut < n and 2 * (tail + comb(n, cut)) <= (1 - LEVEL) * 2**n:
        tail += comb(n, cut)
        cut += 1
    return (v[cut - 1], v[n - cut]) if cut else None


def ratio_to(peer, own):
    ratios = [peer[r] / own[r] for r in own if r in peer and own[r] > 0]
    return median(ratios), interval(ratios)


def short(value):
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def show(ratio):
    value, bounds = ratio
    return f"{short(value):>7} " + (f"{short(bounds[0]):>6}-{short(bounds[1]):<6}" if bounds else f"{'-':^13}")


def number(us):
    return f"{us:.3f}" if us < 10 else f"{us:.2f}" if us < 100 else f"{us:.0f}"


def summary(name, ratios, bests):
    """ratios: peer or "best" -> list of (ratio, operation, bytes)"""
    best = sorted(ratios["best"])
    behind = [r for r in best if r[0] < ENOUGH]
    print(f"# {name}: {len(best)} rows; the best peer's time by collrun's: median {median(r[0] for r in best):.2f}, "
          f"worst {best[0][0]:.2f} ({best[0][1]} {best[0][2]}); {len(behind)} rows below {ENOUGH}")
    others = [f"{peer} {median(r[0] for r in rows):.2f}" for peer, rows in ratios.items() if peer != "best"]
    print(f"#   median to each peer: {', '.join(others)}")
    if behind:
        print("#   behind: " + ", ".join(f"{op} {size} {ratio:.2f} ({bests[op, size]})" for ratio, op, size in behind))


def main(plan, ours, *libraries):
    rows, prefix = read_plan(plan)
    own, peers = libraries[:int(ours)], libraries[int(ours):]
    results = {name: read_results(f"{prefix}.{i}") for i, name in enumerate(libraries)}
    found = {name: {"best": [], **{peer: [] for peer in peers}} for name in own}
    bests = {}
    width = {name: max(9, len(name)) for name in libraries}
    print(f"{'operation':<21} {'bytes':>9}" + "".join(f" {name:>{width[name]}}" for name in libraries) +
          "".join(f" | {name + ': ratio':<21}" for name in own if peers) + (" to" if peers else ""))
    for r, (op, size) in enumerate(rows):
        times = {name: results[name][r] for name in libraries if r in results[name]}
        medians = {name: median(t.values()) for name, t in times.items()}
        line = f"{op:<21} {size:>9}" + "".join(
            f" {number(medians[n]) if n in medians else '-':>{width[n]}}" for n in libraries)
        rivals = [p for p in peers if p in medians]
        for name in own:
            if name not in medians or not rivals:
                continue
            best = bests[op, size] = min(rivals, key=medians.get)
            line += f" | {show(ratio_to(times[best], times[name]))}"
            found[name]["best"].append((ratio_to(times[best], times[name])[0], op, size))
            for peer in rivals:
                found[name][peer].append((ratio_to(times[peer], times[name])[0], op, size))
        print(line + (f" {bests[op, size]}" if rivals and (op, size) in bests else ""))
    for name in own:
        if found[name]["best"]:
            summary(name, {k: v for k, v in found[name].items() if v}, bests)


main(*sys.argv[1:])
