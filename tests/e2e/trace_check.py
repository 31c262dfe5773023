#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: trace_check.py FILE [RANKxGROUPxKIND=COUNT...] [name=COUNT...]

Reads a trace as collrun-trace(5) describes it, with a strict reader. Prints one line for each thing that is wrong. Further
arguments: how many operations of a kind a rank has in a group ("*" for a part: any), and how many instants have a name."""
import collections
import json
import os
import sys

CLOCKS_US = 1000 * int(os.environ.get("CLOCKS_MS", "0"))


def read(path):
    """The events, and whether the file is complete."""
    text = open(path, encoding="utf-8", errors="strict").read()
    if text.endswith("}\n]\n"):
        return json.loads(text), True
    text = text[: text.rfind("\n")].rstrip(",\n")
    return json.loads(text + "]"), False


def number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def check_event(e, wrong):
    kinds = {"M": {"name", "pid", "tid", "args"}, "X": {"name", "cat", "pid", "tid", "ts", "dur", "args"},
             "s": {"name", "cat", "id", "pid", "tid", "ts"}, "f": {"name", "cat", "id", "bp", "pid", "tid", "ts"},
             "C": {"name", "pid", "tid", "ts", "args"}, "i": {"name", "cat", "s", "pid", "tid", "ts", "args"}}
    if e.get("ph") not in kinds or set(e) - {"ph"} != kinds[e["ph"]]:
        wrong(f"members of {e}")
    for key in ("ts", "dur"):
        if key in e and not (number(e[key]) and e[key] >= 0):
            wrong(f"{key} of {e}")


def check_operations(events, dropped, wrong):
    """Each once, those of a track one after the other, without a gap if none was dropped."""
    seen, tracks = collections.Counter(), collections.defaultdict(list)
    for e in events:
        args = e["args"]
        group = e["tid"] // 16
        if e["cat"] == "collective":
            seen[e["pid"], group, args["seq"]] += 1
        tracks[e["pid"], e["tid"]].append((round(e["ts"] * 1000), round((e["ts"] + e["dur"]) * 1000)))
        if args["Collective name"] != e["name"] or args.get("state", "failed") not in "posted started failed aborted canceled".split():
            wrong(f"arguments of {e}")
    for key, n in seen.items():
        if n != 1:
            wrong(f"pid, group, seq {key}: {n} times")
    for key, slices in tracks.items():
        slices.sort()
        for a, b in zip(slices, slices[1:]):
            if b[0] < a[1] and key[1] % 16 != 15:
                wrong(f"overlap on {key}: {a} {b}")
    for (pid, group), numbers in groups_of(seen).items():
        if not dropped and sorted(numbers) != list(range(1, len(numbers) + 1)):
            wrong(f"pid {pid}, group {group}: numbers {min(numbers)} to {max(numbers)}, {len(numbers)} of them")


def groups_of(seen):
    groups = collections.defaultdict(list)
    for pid, group, seq in seen:
        groups[pid, group].append(seq)
    return groups


def check_flows(events, wrong):
    """Both ends of a message, the begin before the end."""
    ends = collections.defaultdict(dict)
    for e in events:
        if e["ph"] in ends[e["id"]]:
            wrong(f"two flows {e['ph']} with id {e['id']}")
        ends[e["id"]][e["ph"]] = e["ts"]
    for key, flow in ends.items():
        if set(flow) == {"s", "f"} and flow["s"] > flow["f"] + CLOCKS_US:
            wrong(f"message {key} is received before it is sent")
    return sum(len(flow) == 2 for flow in ends.values())


def main():
    mistakes = []
    events, complete = read(sys.argv[1])
    for e in events:
        check_event(e, mistakes.append)
    by = collections.defaultdict(list)
    for e in events:
        by[e["ph"]].append(e)
    check_operations(by["X"], any(e["name"] == "dropped" for e in by["i"]), mistakes.append)
    messages = check_flows(by["s"] + by["f"], mistakes.append)
    named = {(e["pid"], e["tid"]) for e in by["M"] if e["name"] == "thread_name"}
    mistakes += [f"track without a name: {e}" for e in by["X"] if (e["pid"], e["tid"]) not in named]
    for want in sys.argv[2:]:
        what, count = want.rsplit("=", 1)
        parts = what.split("x")
        if what == "complete":
            got = complete
        elif what == "messages":
            got = messages
        elif len(parts) == 3:
            got = sum(all(p in ("*", str(v)) for p, v in zip(parts, (e["pid"], e["args"]["Process Group Name"], e["name"])))
                      for e in by["X"])
        else:
            got = sum(e["name"] == what for e in by["i"])
        if str(got) != count and not (count == "some" and got):
            mistakes.append(f"{what}: {got}, expected {count}")
    print("\n".join(mistakes[:20]))


main()
