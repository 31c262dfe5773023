#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Changes one call of one rank in records made from traces, and compares the verdict of `collrun diag` with the one that follows.

usage: TRACES=DIR traces.py [--cases N]      DIR: folders or archives of traces in these formats
- pmpi-trace-rank-N.txt   liballprof's traces of MPI programs (SWEEP3D)
- *_eg_N.json             PyTorch execution traces (DLRM), as 20 iterations
`replay` decides how far each rank gets: sends are buffered, receives and collectives wait. The program records (records.c) writes what
the recorders of the ranks would hold then, and asks the code of collrun diag; a sample goes through the command itself.
"""
import argparse
import json
import os
import random
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

from draw import Call

BUILD = Path(os.environ.get("BUILD", Path(__file__).resolve().parent.parent.parent / "build/release"))
COLLRUN = os.environ.get("COLLRUN", str(BUILD / "bin/collrun"))
SEED = os.environ.get("SEED", "1")
MPI_SIZES = {1: "int8", 2: "int16", 4: "int32", 8: "float64"}


# ---- traces ----

def read_mpi(path):
    calls = []
    for line in path.read_text().splitlines():
        words = line.split(":")
        if words[0] in ("MPI_Send", "MPI_Recv"):
            kind = {"MPI_Send": "send", "MPI_Recv": "recv"}[words[0]]
            dtype = MPI_SIZES[int(words[4].split(",")[1])]
            calls.append(Call("world", kind, dtype, count=int(words[3]), peer=int(words[5]), tag=int(words[6])))
        elif words[0] == "MPI_Bcast":
            calls.append(Call("world", "broadcast", MPI_SIZES[int(words[4].split(",")[1])], count=int(words[3]), root=int(words[5])))
        elif words[0] == "MPI_Allreduce":
            calls.append(Call("world", "allreduce", MPI_SIZES[int(words[5].split(",")[1])], count=int(words[4])))
        elif words[0] == "MPI_Barrier":
            calls.append(Call("world", "barrier"))
    return calls


def read_pytorch(path):
    calls = []
    types = {"float": "float32", "long int": "int64", "int": "int32"}
    for node in json.loads(path.read_text())["nodes"]:
        if node["name"] != "record_param_comms" or node["inputs"][-3] == "wait":
            continue
        tensor = node["inputs"][0]
        tensor = tensor[0] if isinstance(tensor[0], list) else tensor
        dtype = types[re.search(r"Tensor\(([^)]*)\)", node["input_types"][0])[1]]
        kind, receives, sends = node["inputs"][-3:]
        if kind == "all_to_allv":
            calls.append(Call("world", "alltoallv", dtype, sends=tuple(receives), receives=tuple(sends)))
        elif kind == "all_to_all":
            calls.append(Call("world", "alltoall", dtype, count=tensor[3] // 8))
        else:
            calls.append(Call("world", "allreduce", dtype, count=tensor[3]))
    return calls * 20


def read_traces(folder):
    """name -> the calls of each rank"""
    programs = {}
    for pattern, read in (("**/pmpi-trace-rank-*.txt", read_mpi), ("**/*_eg_[0-9]*.json", read_pytorch)):
        places = defaultdict(list)
        for path in folder.glob(pattern):
            places[path.parent].append(path)
        for place, paths in places.items():
            paths.sort(key=lambda path: int(re.findall(r"\d+", path.name)[-1]))
            programs[place.name] = [read(path) for path in paths]
    return programs


# ---- what a program does ----

def replay(ranks):
    """How many calls each rank completes, and how many collectives it has entered."""
    stops, entered, completed = [0] * len(ranks), [0] * len(ranks), [0] * len(ranks)
    sent = defaultdict(int)
    progress = True

    def passes(rank, call):
        if call.kind == "send":
            sent[rank, call.peer, call.tag] += 1
            return True
        if call.kind == "recv":
            sent[call.peer, rank, call.tag] -= 1
            if sent[call.peer, rank, call.tag] >= 0:
                return True
            sent[call.peer, rank, call.tag] += 1
            return False
        entered[rank] = completed[rank] + 1
        if min(entered) < entered[rank]:
            return False
        completed[rank] += 1
        return True

    while progress:
        progress = False
        for rank, calls in enumerate(ranks):
            while stops[rank] < len(calls) and passes(rank, calls[stops[rank]]):
                stops[rank] += 1
                progress = True
    return stops, entered


def pair_expected(number, given):
    """The verdict on the counts of an alltoallv; None: they agree."""
    pairs = [{a, b} for a in given for b in given if given[a].sends[b] != given[b].receives[a]]
    if not pairs:
        return None
    wrong = sorted(set.intersection(*pairs))
    if len(wrong) == 1:
        return {"mismatch": (wrong, [])}, number
    return {"mismatch": ([], wrong or sorted(set.union(*pairs)))}, number


def disagreement(ranks, stops):
    """The first collective about which ranks differ, as far as they called it: ({class: (culprits, suspects)}, number)."""
    calls = [[c for c in calls[:stop + 1] if c.kind not in ("send", "recv")] for calls, stop in zip(ranks, stops)]
    for number in range(max(map(len, calls))):
        given = {rank: own[number] for rank, own in enumerate(calls) if number < len(own)}
        votes = Counter(repr(call.arguments()) for call in given.values()).most_common()
        if len(votes) == 1:
            found = pair_expected(number + 1, given) if given[min(given)].kind == "alltoallv" else None
            if found:
                return found
            continue
        if votes[0][1] == votes[1][1]:
            return {"mismatch": ([], sorted(given))}, number + 1
        return {"mismatch": (sorted(r for r in given if repr(given[r].arguments()) != votes[0][0]), [])}, number + 1
    return None


def waits_of(ranks, stops, entered):
    waits = {}
    for rank, calls in enumerate(ranks):
        if stops[rank] == len(calls):
            continue
        call = calls[stops[rank]]
        waits[rank] = {call.peer} if call.kind == "recv" else {r for r, n in enumerate(entered) if n < entered[rank]}
    return waits


def reachable(waits, rank):
    seen, todo = set(), [rank]
    while todo:
        for other in waits.get(todo.pop(), ()):
            if other not in seen:
                seen.add(other)
                todo.append(other)
    return seen


def expected_of(ranks):
    """What a verdict may be: {class: (culprits, suspects)} and the number of a mismatch or None; how far ranks get. The suspects of a
    deadlock may be any cycle of them."""
    stops, entered = replay(ranks)
    waits = waits_of(ranks, stops, entered)
    found = disagreement(ranks, stops)
    if found:
        return found, stops
    if not waits:
        return ({"ok": ([], [])}, None), stops
    right = {}
    cycle = sorted(rank for rank in waits if rank in reachable(waits, rank))
    ended = sorted({r for others in waits.values() for r in others if r not in waits})
    if cycle:
        right["deadlock"] = ([], cycle)
    if ended:
        right["exit"] = (ended, [])
        if len(ranks) - len(waits) > len(waits) and not any(ranks[r][stops[r]].kind == "recv" for r in waits):
            right = {"mismatch": (sorted(waits), [])}
    return (right, None), stops


def is_right(verdict, expected):
    right, number = expected
    if verdict["class"] not in right:
        return False
    culprits, suspects = right[verdict["class"]]
    if verdict["class"] == "deadlock":
        return not verdict["culprits"] and verdict["suspects"] and set(verdict["suspects"]) <= set(suspects)
    return (verdict["culprits"], verdict["suspects"]) == (culprits, suspects) and number in (None, verdict["number"])


# ---- changes ----

def changed(rng, call, nranks):
    """The call with one other argument."""
    if call.kind in ("send", "recv"):
        return replace(call, tag=call.tag + 7) if rng.random() < 0.5 else replace(call, peer=rng.choice(
            [r for r in range(nranks) if r != call.peer]))
    if call.kind == "alltoallv":
        at = rng.randrange(nranks)
        return replace(call, sends=call.sends[:at] + (call.sends[at] + 1,) + call.sends[at + 1:])
    choices = [replace(call, kind="barrier" if call.kind != "barrier" else "allreduce", count=8, dtype="int32")]
    if call.kind != "barrier":
        choices += [replace(call, count=call.count + 1), replace(call, dtype="uint16")]
    if call.kind == "allreduce":
        choices.append(replace(call, op="max"))
    if call.kind == "broadcast":
        choices.append(replace(call, root=(call.root + 1) % nranks))
    return rng.choice(choices)


def change(rng, ranks):
    """One change: the text for records.c, its name, and the program that results."""
    while True:
        rank = rng.randrange(len(ranks))
        at = rng.randrange(len(ranks[rank]) - 1)
        calls, call = list(ranks[rank]), ranks[rank][at]
        what = rng.choice(("drop", "swap", "insert", "replace"))
        text = f"{rank};{at};{what}"
        if what == "drop":
            del calls[at]
        elif what == "swap":
            calls[at:at + 2] = calls[at + 1], calls[at]
            if call.line() == calls[at].line():
                continue
        else:
            new = changed(rng, call, len(ranks))
            calls[at:at + (what == "replace")] = [new]
            text += f";{new.line().removeprefix('world ')}"
        return text, f"{what} {'message' if call.kind in ('send', 'recv') else call.kind}", [
            calls if r == rank else own for r, own in enumerate(ranks)]


# ---- the test ----

def read_verdict(stream):
    text = ""
    for line in stream:
        text += line
        if line == "}\n":
            return json.loads(text)
    raise EOFError(text)


def judge(name, ranks, cases, folder):
    """Returns {kind of change: [right, all]} and the number of times that the command said the same."""
    rng = random.Random(f"{SEED}/{name}")
    program = folder / f"{name}.calls"
    program.write_text(f"{len(ranks)}\n" + "".join(
        f"{rank} {call.line().removeprefix('world ')}\n" for rank, calls in enumerate(ranks) for call in calls))
    child = subprocess.Popen([str(BUILD / "tests/records"), str(program), str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             text=True)
    totals, same, missed = defaultdict(lambda: [0, 0]), 0, 0
    for case in range(cases):
        text, what, result = change(rng, ranks)
        expected, stops = expected_of(result)
        print(f"{','.join(map(str, stops))};{text}", file=child.stdin, flush=True)
        verdict = read_verdict(child.stdout)
        right = is_right(verdict, expected)
        totals[what][0] += right
        totals[what][1] += 1
        if case % 100 == 0:
            command = subprocess.run([COLLRUN, "diag", str(folder), "--json"], capture_output=True, text=True, check=False)
            same += command.returncode == 0 and json.loads(command.stdout) == verdict
        if not right:
            missed += 1
            if missed <= 20:
                print(f"#   {name}, case {case}: {text}: {verdict['class']} {verdict['culprits']} {verdict['suspects']} "
                      f"{verdict['number']}, expected {expected}; {str(verdict['text'])[:200]}")
    child.stdin.close()
    child.wait()
    return totals, same, (cases + 99) // 100


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=10000)
    arguments = parser.parse_args()
    number, right, total, begin = 0, 0, 0, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="corpus.") as name:
        folder = Path(name)
        source = Path(os.environ["TRACES"])
        for archive in source.glob("*.tar.gz"):
            with tarfile.open(archive) as tar:
                tar.extractall(folder / archive.name.split(".")[0], filter="data")
        programs = {**read_traces(folder), **read_traces(source)}
        for trace, ranks in programs.items():
            totals, same, asked = judge(trace, ranks, arguments.cases // len(programs), folder)
            for what, (good, cases) in sorted(totals.items()):
                number, right, total = number + 1, right + good, total + cases
                print(f"{'ok' if good == cases else 'not ok'} {number} - {trace}: {what}: {good} of {cases}")
            number += 1
            print(f"{'ok' if same == asked else 'not ok'} {number} - {trace}: the command gives the same verdict: {same} of {asked}")
    print(f"1..{number}")
    print(f"# {right} of {total} changes of traces are explained ({100 * right / max(total, 1):.1f} %), "
          f"{time.monotonic() - begin:.0f} s, SEED={SEED}")
    return 0 if total and right >= 0.99 * total else 1


if __name__ == "__main__":
    sys.exit(main())
