# SPDX-License-Identifier: Apache-2.0
"""Injects one fault of one class into a program, and derives the verdict from the program alone (the oracle).

- CLASSES: name -> function(rng, backend) that returns a Case.
- Ranks in a verdict are world ranks. Expected.operations: the operations that the verdict may name; None: not compared.
- A step of the fault is adjacent to the steps it depends on, so that all members reach it and the verdict has one right value.
- Lines `mark` write the times of the calls that matter.
"""
import os
from collections import Counter
from dataclasses import dataclass, replace
from typing import Optional

from draw import (DTYPES, KINDS, OPS, PAIRS, RANKS, REDUCE, ROOTED, SYNCHRONISE, Call, Line, Program, Step, draw_collective, draw_message,
                  draw_program, make_step, write_scripts)

SLOW = 5 if any(word in os.environ.get("BUILD", "") for word in ("asan", "tsan")) else 1
PATIENT = "timeouts: {grace: 20s}"  # the second rank that ends may be a while without a processor
LARGE = 1 << 20  # elements of 8 bytes: a message that its sender cannot buffer


@dataclass
class Expected:
    verdict: str
    culprits: tuple = ()
    suspects: tuple = ()
    operations: Optional[set] = None  # of (group, kind or None, number or None)
    fields: Optional[set] = None
    exit_code: Optional[int] = None
    reports: bool = True  # something is printed


@dataclass
class Case:
    program: Program
    expected: Expected
    timed: str = ""  # audit or deadlock: the time from the last mark to the first failing call is of interest


# ---- places ----

def place(rng, program, minimum=2, groups=None):
    """A group of at least `minimum` members, its thread and a position among its steps."""
    names = [name for name in groups or program.groups if len(program.groups[name]) >= minimum]
    group = rng.choice(names)
    thread = program.thread_of(group)
    return group, thread, rng.randint(len(thread.steps) // 5, len(thread.steps))


def scripts(rng, program, **how):
    for thread in program.threads:
        write_scripts(rng, program, thread, **{"jitter": 0.02, **how})


def lines_of(thread, rank, step):
    """The indexes of the rank's calls in a step."""
    return [i for i, line in enumerate(thread.scripts[rank]) if line.step == step and line.call]


def mark(thread, step):
    for rank in thread.scripts:
        for i in lines_of(thread, rank, step)[:1]:
            thread.scripts[rank].insert(i, Line(step, "mark"))


def replace_rest(thread, rank, step, texts):
    """The rank does this instead of its call of the step and of all that follows."""
    script = thread.scripts[rank]
    at = lines_of(thread, rank, step)[0]
    script[at:] = [Line(step, text) for text in texts]


def sync_step(rng, program, group):
    return make_step(program, group, draw_collective(rng, group, len(program.groups[group]), tuple(sorted(SYNCHRONISE))), True)


# ---- disagreements ----

def disagreement(program, thread, group):
    """The verdict on the calls of a group's members: the first number at which they differ, and the minority."""
    members = program.groups[group]
    calls = {rank: [line.call for line in thread.scripts[rank] if line.call and line.call.group == group and line.number]
             for rank in members}
    for number in range(min(map(len, calls.values()))):
        given = {rank: calls[rank][number].arguments() for rank in members}
        votes = Counter(map(repr, given.values()))
        if len(votes) == 1:
            continue
        (winner, most), *others = votes.most_common()
        kinds = {call["kind"] for call in given.values()}
        fields = {"kind"} if len(kinds) > 1 else {key for key in next(iter(given.values()))
                                                  if len({repr(call.get(key)) for call in given.values()}) > 1}
        differing = tuple(sorted(rank for rank in members if repr(given[rank]) != winner))
        if most == others[0][1]:
            kinds = kinds if len(kinds) == 1 else {None}
            return Expected("mismatch", (), tuple(sorted(members)), {(group, kind, number + 1) for kind in kinds}, fields, 1)
        kind = next(call["kind"] for call in given.values() if repr(call) == winner)
        return Expected("mismatch", differing, (), {(group, kind, number + 1)}, fields, 1)
    raise AssertionError("the fault changed nothing")


def different(rng, values, value):
    return rng.choice([v for v in values if v != value])


def change(rng, call, what, n):
    """The call with one wrong argument; None if the kind does not have it."""
    if what == "op":
        return replace(call, op=different(rng, OPS, call.op)) if call.kind in REDUCE else None
    if what == "dtype":
        return replace(call, dtype=different(rng, DTYPES, call.dtype)) if call.kind != "barrier" else None
    if what == "root":
        return replace(call, root=different(rng, range(n), call.root)) if call.kind in ROOTED - PAIRS else None
    if what == "count":
        if call.kind == "barrier" or call.counts or call.kind in PAIRS:
            return None
        return replace(call, count=rng.choice((call.count + 1, call.count * 2, max(1, call.count // 2) if call.count > 1 else 7)))
    if what == "counts":
        if not call.counts:
            return None
        at = rng.randrange(n)
        counts = call.counts[:at] + (call.counts[at] + rng.randint(1, 9),) + call.counts[at + 1:]
        return replace(call, counts=counts)
    kind = different(rng, [k for k in KINDS if k not in PAIRS and not k.endswith("v")], call.kind)
    return replace(call, kind=kind, count=call.count or 8, counts=(), sends=(), receives=())


def differing(what):
    kinds = {"op": sorted(REDUCE), "root": sorted(ROOTED - PAIRS), "counts": ["allgatherv", "reduce_scatterv"],
             "count": [k for k in KINDS if k != "barrier" and not k.endswith("v")], "dtype": KINDS[1:], "kind": KINDS}[what]

    def make(rng, backend, culprits=1, minimum=2, alike=True):
        program = draw_program(rng, backend, minimum=minimum)
        group, thread, at = place(rng, program, minimum)
        members = program.groups[group]
        thread.steps.insert(at, make_step(program, group, draw_collective(rng, group, len(members), kinds)))
        scripts(rng, program)
        wrong = None
        for rank in rng.sample(members, culprits):
            line = thread.scripts[rank][lines_of(thread, rank, at)[0]]
            own = members.index(rank)
            if wrong is None or not alike:
                wrong = change(rng, line.call, what, len(members))
            line.call = replace(wrong) if alike else wrong
            if line.call.kind == "allgatherv":
                line.call.count = line.call.counts[own]
        mark(thread, at)
        return Case(program, disagreement(program, thread, group), "audit")
    return make


def pair_counts(rng, backend):
    """A count of a v-form that only two ranks can compare: the sender's and the receiver's differ."""
    program = draw_program(rng, backend)
    group, thread, at = place(rng, program)
    members = program.groups[group]
    calls = draw_collective(rng, group, len(members), tuple(sorted(PAIRS)))
    kind = calls[0].kind
    wrong = rng.choice([r for r in range(len(members)) if kind == "alltoallv" or r != calls[0].root])
    other = different(rng, range(len(members)), wrong) if kind == "alltoallv" else calls[0].root
    call = calls[wrong]
    if kind == "alltoallv":
        call.sends = call.sends[:other] + (call.sends[other] + rng.randint(1, 9),) + call.sends[other + 1:]
    else:
        call.count += rng.randint(1, 9)
    thread.steps.insert(at, make_step(program, group, calls))
    scripts(rng, program)
    mark(thread, at)
    number = next(line.number for line in thread.scripts[members[0]] if line.step == at and line.call)
    return Case(program, Expected("mismatch", (), tuple(sorted((members[wrong], members[other]))), {(group, kind, number)},
                                  {"count", "counts"}, 1), "audit")


def two_steps(rng, backend):
    """Two adjacent steps of one group with different arguments; program, group, thread, index of the first, the rank of the fault."""
    program = draw_program(rng, backend)
    group, thread, at = place(rng, program)
    n = len(program.groups[group])
    first = draw_collective(rng, group, n)
    second = first
    while second[0].arguments().get("kind") == first[0].arguments()["kind"]:
        second = draw_collective(rng, group, n)
    thread.steps[at:at] = [make_step(program, group, first, True), make_step(program, group, second, True)]
    scripts(rng, program)
    return program, group, thread, at, rng.choice(program.groups[group])


def sequence(what):
    def make(rng, backend):
        program, group, thread, at, rank = two_steps(rng, backend)
        script = thread.scripts[rank]
        i, j = lines_of(thread, rank, at)[0], lines_of(thread, rank, at + 1)[0]
        if what == "missing":
            script[i:i + 1] = []
        elif what == "swapped":
            script[i], script[j] = script[j], script[i]
        else:
            call = different_call(rng, script[i].call, len(program.groups[group]))
            script.insert(i, Line(at, call=call, number=script[i].number))
        for step in (at, at + 1):
            mark(thread, step)
        return Case(program, disagreement(program, thread, group), "audit")
    return make


def different_call(rng, call, n):
    extra = call
    while extra.kind == call.kind or extra.kind.endswith("v"):
        extra = draw_collective(rng, call.group, n)[0]
    return extra


# ---- deadlocks ----

def cycle(ranks, operations, minority=()):
    return Expected("deadlock", minority, () if minority else tuple(sorted(ranks)), operations, None, 124)


def operation(thread, rank, step):
    line = thread.scripts[rank][lines_of(thread, rank, step)[0]]
    return line.call.group, line.call.kind, line.number


def one_thread(rng, backend, groups, ranks):
    """A program of one thread with these groups."""
    program = draw_program(rng, backend, ranks=(ranks, ranks))
    thread = program.threads[0]
    program.groups, program.threads = groups, [thread]
    thread.groups, thread.steps = list(groups), []
    for _ in range(rng.randint(10, 60)):
        group = rng.choice(thread.groups)
        calls = draw_collective(rng, group, len(groups[group]))
        thread.steps.append(make_step(program, group, calls))
    return program, thread


def invert_two(rng, backend):
    n = rng.randint(*RANKS)
    shared = rng.sample(range(n), rng.randint(2, n))
    rest = [rank for rank in range(n) if rank not in shared]
    cut = rng.randint(0, len(rest))
    program, thread = one_thread(rng, backend, {"g0": shared + rest[:cut], "g1": shared[::-1] + rest[cut:]}, n)
    at = len(thread.steps) - rng.randint(0, 5)
    thread.steps[at:at] = [sync_step(rng, program, "g0"), sync_step(rng, program, "g1")]
    scripts(rng, program, polls=False)
    rank = rng.choice(shared)
    script = thread.scripts[rank]
    i, j = lines_of(thread, rank, at)[0], lines_of(thread, rank, at + 1)[0]
    script[i], script[j] = script[j], script[i]
    mark(thread, at)
    mark(thread, at + 1)
    other = next(r for r in shared if r != rank)
    return Case(program, cycle(shared, {operation(thread, other, at), operation(thread, other, at + 1)},
                               (rank,) if len(shared) > 2 else ()), "deadlock")


def invert_three(rng, backend):
    n = rng.randint(3, max(3, RANKS[1]))
    order = rng.sample(range(n), n)
    a, b, c = order[:3]
    groups = {"g0": [a, b], "g1": [b, c], "g2": [c, a]}
    for rank in order[3:]:
        groups[rng.choice(("g0", "g1", "g2"))].append(rank)
    program, thread = one_thread(rng, backend, groups, n)
    at = len(thread.steps) - rng.randint(0, 5)
    thread.steps[at:at] = [sync_step(rng, program, g) for g in groups]
    scripts(rng, program, polls=False)
    script = thread.scripts[a]
    i, j = lines_of(thread, a, at)[0], lines_of(thread, a, at + 2)[0]
    script[i], script[j] = script[j], script[i]
    for step in (at, at + 1, at + 2):
        mark(thread, step)
    operations = {operation(thread, rank, step) for rank, step in ((b, at), (c, at + 1), (a, at + 2))}
    return Case(program, cycle((a, b, c), operations), "deadlock")


def message_number(thread, rank, line):
    """How many messages the rank has called in the group, up to this line."""
    calls = [other for other in thread.scripts[rank] if other.call and other.call.kind in ("send", "recv") and
             other.call.group == line.call.group]
    return 1 + next(i for i, other in enumerate(calls) if other is line)


def with_messages(rng, backend, lines_by_rank):
    """A program in which two members of a group run these calls, and then all members a collective; its group, the two ranks, and the
    operations in which they may be: the first message of each, and the collective."""
    program = draw_program(rng, backend, steps=(10, 60))
    group, thread, at = place(rng, program)
    members = program.groups[group]
    a, b = rng.sample(range(len(members)), 2)
    thread.steps.insert(at, sync_step(rng, program, group))
    scripts(rng, program, polls=False)
    operations = {operation(thread, members[a], at)}
    for rank, calls in zip((members[a], members[b]), lines_by_rank(group, a, b)):
        script = thread.scripts[rank]
        i = lines_of(thread, rank, at)[0]
        lines = [Line(at, call=call) for call in calls]
        script[i:i] = [Line(at, "mark")] + lines
        operations |= {(group, line.call.kind, message_number(thread, rank, line)) for line in lines[:1]}
    return program, group, tuple(sorted((members[a], members[b]))), operations


def messages(operations):
    return {o for o in operations if o[1] in ("send", "recv")}


def message(group, kind, peer, count, tag=0, dtype="float64"):
    return Call(group, kind, dtype, peer=peer, count=count, tag=tag)


def cross_sends(rng, backend):
    program, _, pair, operations = with_messages(rng, backend, lambda g, a, b: (
        [message(g, "send", b, LARGE), message(g, "recv", b, LARGE)], [message(g, "send", a, LARGE), message(g, "recv", a, LARGE)]))
    return Case(program, cycle(pair, operations), "deadlock")


def lone_send(rng, backend):
    program, _, pair, operations = with_messages(rng, backend, lambda g, a, b: ([message(g, "send", b, LARGE)], []))
    return Case(program, cycle(pair, operations), "deadlock")


def lone_receive(rng, backend):
    program, _, pair, operations = with_messages(rng, backend, lambda g, a, b: ([message(g, "recv", b, 8)], []))
    return Case(program, cycle(pair, operations), "deadlock")


def wrong_tag(rng, backend):
    program, _, pair, operations = with_messages(rng, backend, lambda g, a, b: (
        [message(g, "send", b, 8, tag=100)], [message(g, "recv", a, 8, tag=101)]))
    return Case(program, cycle(pair, operations), "deadlock")


def wrong_size(rng, backend):
    count, other = rng.choice(((8, 9), (1, 4), (4000, 1000), (LARGE, 8), (8, LARGE)))
    program, _, pair, operations = with_messages(rng, backend, lambda g, a, b: (
        [message(g, "send", b, count, tag=100)], [message(g, "recv", a, other, tag=100)]))
    return Case(program, Expected("mismatch", (), pair, messages(operations), {"count"}, 1))


def wrong_type(rng, backend):
    program, _, pair, operations = with_messages(rng, backend, lambda g, a, b: (
        [message(g, "send", b, 8, dtype="int64", tag=100)], [message(g, "recv", a, 8, tag=100)]))
    return Case(program, Expected("mismatch", (), pair, messages(operations), {"dtype"}, 1))


# ---- ranks that stop ----

def stopping(rng, backend, culprits, minimum=2):
    """A program and a step that all members of a group must reach together."""
    program = draw_program(rng, backend, minimum=minimum)
    group, thread, at = place(rng, program, minimum)
    thread.steps.insert(at, sync_step(rng, program, group))
    scripts(rng, program)
    ranks = sorted(rng.sample(program.groups[group], culprits))
    return program, group, thread, at, ranks


def late(text, limit="group", culprits=1):
    def make(rng, backend):
        program, group, thread, at, ranks = stopping(rng, backend, culprits, culprits + 1)
        there = operation(thread, ranks[0], at)
        others = {(name, None, None) for name in program.groups if name != group}
        for rank in ranks:
            replace_rest(thread, rank, at, [text])
        if limit == "group":
            program.keys["timeout"] = f"{4 * SLOW}s"
        else:
            program.lines.append(f"timeouts: {{grace: 500ms, run: {4 * SLOW}s}}")
        return Case(program, Expected("missing", tuple(ranks), (), {there} | others, exit_code=124))
    return make


def nobody_missing(rng, backend):
    program = draw_program(rng, backend)
    scripts(rng, program)
    for thread in program.threads:
        for rank in thread.scripts:
            thread.scripts[rank].append(Line(len(thread.steps), "sleep 0"))
    program.lines.append(f"timeouts: {{grace: 500ms, run: {4 * SLOW}s}}")
    return Case(program, Expected("timeout", exit_code=124))


def ending(verdict, texts, exit_code=None, culprits=1):
    def make(rng, backend):
        program, _, thread, at, ranks = stopping(rng, backend, culprits)
        text, code = rng.choice(list(zip(texts, exit_code or [None] * len(texts))))
        for rank in ranks:
            replace_rest(thread, rank, at, [text])
        return Case(program, Expected(verdict, tuple(ranks), exit_code=code))
    return make


def left_behind(rng, backend):
    """A rank exits with 0 in the middle, and the job continues without it."""
    case = ending("exit", ("leave 0",), (1,))(rng, backend)
    case.program.lines.append("on_failure: {action: continue}")
    return case


def out_of_memory(rng, backend):
    case = ending("oom", ("eat",), (137,))(rng, backend)
    case.program.limited = True
    return case


def all_alike(rng, backend):
    program = draw_program(rng, backend)
    scripts(rng, program)
    thread = program.threads[0]
    text, verdict, code = rng.choice((("return 5", "exit", 5), ("leave 6", "exit", 6), ("signal 11", "signal", 139), ("fail alike", "error", 1)))
    for rank in thread.scripts:
        thread.scripts[rank] += [Line(0, f"meet all {len(thread.scripts)}"), Line(0, text)]
    program.threads = [thread]
    program.groups = {name: program.groups[name] for name in thread.groups}
    program.lines.append(PATIENT)
    ranks = sorted(thread.scripts)
    if ranks != list(range(program.ranks)):
        return all_alike(rng, backend)
    return Case(program, Expected(verdict, tuple(ranks), exit_code=code))


def two_endings(rng, backend):
    """Two ranks end at the same time: alike, or one by a signal, which is the stronger class. There is one thread: a call of another one
    could fail because of the first rank, before the second one ends."""
    while True:
        program, _, thread, at, ranks = stopping(rng, backend, 2)
        if len(program.threads) > 1:
            continue
        first, second, verdict = rng.choice((("return 7", "return 7", "exit"), ("return 7", "return 8", "exit"),
                                             ("signal 11", "signal 6", "signal"), ("signal 9", "return 7", "signal")))
        for rank, text in zip(ranks, (first, second)):
            replace_rest(thread, rank, at, ["meet two 2", text])
        program.lines.append(PATIENT)
        both = first.split()[0] == second.split()[0]
        return Case(program, Expected(verdict, tuple(ranks) if both else (ranks[0],)))


def two_wrong(rng, backend):
    what = rng.choice(("op", "dtype", "count", "kind", "root"))
    return differing(what)(rng, backend, culprits=2, minimum=5, alike=rng.random() < 0.5)


# ---- hosts ----

def lost_host(rng, backend):
    program, _, thread, at, ranks = stopping(rng, backend, 1)
    replace_rest(thread, ranks[0], at, ["orphan"])
    half = (program.ranks + 1) // 2
    program.lines += ["hosts:", f"  nodes: [{{name: h0, slots: {half}, transport: local}}, "
                      f"{{name: h1, slots: {program.ranks - half}, transport: {{command: [env]}}}}]"]
    if ranks[0] < half:
        return lost_host(rng, backend)
    return Case(program, Expected("host_lost", tuple(range(half, program.ranks)), exit_code=127))


# ---- devices ----

def device_error(rng, backend):
    """A kernel of one rank fails on the stand-in GPU."""
    n = rng.randint(2, min(8, RANKS[1]))
    members = rng.sample(range(n), n)
    program, thread = one_thread(rng, backend, {"g0": members}, n)
    thread.steps = [sync_step(rng, program, "g0") for _ in range(40)]
    scripts(rng, program, started=0.0)
    wrong = rng.randrange(n)
    program.lines.append(f"env: {{set: {{FAKE_NCCL_FAULT: \"kernel:{rng.randint(5, 15)}:1:{wrong}\"}}}}")
    return Case(program, Expected("error", (members[wrong],), exit_code=1))


# ---- correct programs ----

def clean(rng, backend):
    program = draw_program(rng, backend, steps=(20, 150))
    scripts(rng, program, jitter=rng.choice((0.0, 0.03, 0.1)), started=rng.choice((0.0, 0.25, 0.6)))
    return Case(program, Expected("ok", exit_code=0, reports=False))


CLASSES = {
    "op": differing("op"), "dtype": differing("dtype"), "count": differing("count"), "root": differing("root"),
    "kind": differing("kind"), "counts": differing("counts"), "pair-counts": pair_counts,
    "extra": sequence("extra"), "missing": sequence("missing"), "swapped": sequence("swapped"),
    "invert-two": invert_two, "invert-three": invert_three, "cross-sends": cross_sends, "lone-send": lone_send,
    "lone-receive": lone_receive, "wrong-tag": wrong_tag, "wrong-size": wrong_size, "wrong-type": wrong_type,
    "sleeping": late("sleep 0"), "spinning": late("spin 0"), "reading": late("read"), "late-run": late("sleep 0", "run"),
    "two-late": late("sleep 0", "group", 2), "run-limit": nobody_missing,
    "early-return": ending("exit", ("return 0",), (1,)), "exit": ending("exit", ("return 7", "leave 9"), (7, 9)),
    "left-behind": left_behind,
    "signal": ending("signal", ("signal 9", "signal 11", "signal 8"), (137, 139, 136)), "abort": ending("signal", ("abort",), (134,)),
    "overflow": ending("signal", ("overflow",), (139,)), "fail": ending("error", ("fail by design",), (1,)),
    "oom": out_of_memory, "all-alike": all_alike, "two-endings": two_endings, "two-wrong": two_wrong, "lost-host": lost_host,
    "device-error": device_error,
}
# A class that a backend cannot have: the sender of a message to the template never waits; shm has one host.
WITHOUT = {"stream": {"cross-sends", "lone-send"}, "shm": {"lost-host"}}
ONLY = {"device-error": ["nccl"]}  # on the stand-in libraries


def backends_of(kind, backends):
    return ONLY.get(kind) or [backend for backend in backends if kind not in WITHOUT.get(backend, ())]
