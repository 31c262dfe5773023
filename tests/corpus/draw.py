# SPDX-License-Identifier: Apache-2.0
"""Draws programs that are correct.

A program has ranks, overlapping groups and threads. A thread is a workload with groups that no other thread uses. Its steps are in one
order, which every rank follows: a step is a collective of a group or a message between two members. So no program deadlocks.
A rank's script is a list of lines (commands of program.c); each line knows its step. faults.py changes single lines.
"""
import os
from dataclasses import dataclass, field, replace
from typing import Optional

KINDS = ("barrier", "allreduce", "reduce", "broadcast", "allgather", "gather", "scatter", "reduce_scatter", "alltoall",
         "allgatherv", "gatherv", "scatterv", "reduce_scatterv", "alltoallv", "scan", "exscan")
REDUCE = {"allreduce", "reduce", "reduce_scatter", "reduce_scatterv", "scan", "exscan"}
ROOTED = {"reduce", "broadcast", "gather", "scatter", "gatherv", "scatterv"}
PAIRS = {"gatherv", "scatterv", "alltoallv"}  # only a pair of ranks can compare their counts
# No rank returns from these before every rank has called them.
SYNCHRONISE = {"barrier", "allreduce", "allgather", "alltoall", "reduce_scatter"}
RANKS = tuple(map(int, os.environ.get("RANKS", "2-16").split("-")))  # of a program
DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64")
OPS = ("sum", "prod", "min", "max")


@dataclass
class Call:
    """One rank's call of an operation."""
    group: str
    kind: str
    dtype: str = "int8"
    op: str = "sum"
    root: int = 0
    peer: int = 0
    tag: int = 0
    count: int = 0
    counts: tuple = ()  # v-forms: the counts that all ranks know, by rank
    sends: tuple = ()  # alltoallv, and scatterv at the root
    receives: tuple = ()

    def arguments(self):
        """What all members must give alike, in the order of the verdict's `field`."""
        if self.kind == "barrier":
            return {"kind": "barrier"}
        values = {"kind": self.kind, "dtype": self.dtype}
        if self.kind in REDUCE:
            values["op"] = self.op
        if self.kind in ROOTED:
            values["root"] = self.root
        if self.counts:
            values["counts"] = self.counts
        elif self.kind not in PAIRS:
            values["count"] = self.count
        return values

    def line(self):
        if self.kind == "barrier":
            return f"{self.group} barrier"
        words = [self.group, self.kind, f"dtype={self.dtype}"]
        if self.kind in REDUCE:
            words.append(f"op={self.op}")
        if self.kind in ROOTED:
            words.append(f"root={self.root}")
        if self.kind in ("send", "recv"):
            words += [f"peer={self.peer}", f"tag={self.tag}"]
        if self.count:
            words.append(f"{'recvcount' if self.kind == 'scatterv' else 'count'}={self.count}")
        sends, receives = self.sends, self.receives or self.counts
        words += [f"{name}counts={','.join(map(str, values))}" for name, values in (("send", sends), ("recv", receives)) if values]
        return " ".join(words)


@dataclass
class Line:
    """A command of a script: a call if `call` is set, else the text."""
    step: int
    text: str = ""
    call: Optional[Call] = None
    slot: Optional[int] = None  # the call is started
    number: int = 0  # of a collective in its group

    def __str__(self):
        if not self.call:
            return self.text
        return f"start {self.slot} {self.call.line()}" if self.slot is not None else f"run {self.call.line()}"


@dataclass
class Step:
    group: str
    calls: dict  # world rank -> Call
    blocking: bool = False  # no rank starts it


@dataclass
class Thread:
    name: str
    groups: list
    steps: list = field(default_factory=list)  # of Step
    scripts: dict = field(default_factory=dict)  # rank -> [Line]


@dataclass
class Program:
    ranks: int
    backend: str
    groups: dict  # name -> world ranks, in the order of group ranks
    threads: list
    keys: dict = field(default_factory=dict)  # further keys of each group
    lines: list = field(default_factory=list)  # further lines of job.yaml
    limited: bool = False  # the command must run in a cgroup with little memory

    def thread_of(self, group):
        return next(t for t in self.threads if group in t.groups)


def draw_groups(rng, ranks, minimum):
    groups = {}
    for i in range(rng.choice((1, 1, 2, 2, 3, 4))):
        size = ranks if i == 0 and rng.random() < 0.6 else rng.randint(min(minimum, ranks), ranks)
        members = rng.sample(range(ranks), size)
        groups[f"g{i}"] = sorted(members) if rng.random() < 0.5 else members
    return groups


def draw_counts(rng, n):
    return tuple(rng.choice((1, 2, 5, 16, 33, 64)) for _ in range(n))


def draw_collective(rng, group, n, kinds=KINDS):
    """The calls of one collective, by group rank."""
    kind = rng.choice(kinds)
    count = rng.choice((1, 3, 8, 64, 100, 500, 1024))
    call = Call(group, kind, rng.choice(DTYPES), rng.choice(OPS), rng.randrange(n), count=count)
    calls = [replace(call) for _ in range(n)]
    if kind not in ("allgatherv", "reduce_scatterv") and kind not in PAIRS:
        return calls
    counts = draw_counts(rng, n)
    matrix = [draw_counts(rng, n) for _ in range(n)]
    for rank, mine in enumerate(calls):
        at_root = rank == call.root
        mine.count = 0 if kind in ("alltoallv", "reduce_scatterv") else counts[rank]
        if kind in ("allgatherv", "reduce_scatterv"):
            mine.counts = counts
        elif kind == "gatherv" and at_root:
            mine.receives = counts
        elif kind == "scatterv" and at_root:
            mine.sends = counts
        elif kind == "alltoallv":
            mine.sends, mine.receives = matrix[rank], tuple(row[rank] for row in matrix)
    return calls


def draw_message(rng, group, n):
    src, dst = rng.sample(range(n), 2)
    call = Call(group, "send", rng.choice(DTYPES), tag=rng.choice((0, 0, 3, 9)), count=rng.choice((1, 8, 500, 4000)))
    return {src: replace(call, peer=dst), dst: replace(call, kind="recv", peer=src)}


def make_step(program, group, calls, blocking=False):
    """`calls`: a list by group rank, or a dictionary."""
    members = program.groups[group]
    items = calls.items() if isinstance(calls, dict) else enumerate(calls)
    return Step(group, {members[rank]: call for rank, call in items}, blocking)


class Writer:
    """Writes the scripts of a thread. Some calls are started; a rank has at most 8 requests in flight."""

    def __init__(self, rng, thread, ranks, started, polls):
        self.rng, self.started, self.polls = rng, started, polls
        self.scripts = {rank: [] for rank in ranks}
        self.pending = {rank: [] for rank in ranks}
        thread.scripts = self.scripts

    def end(self, rank, step):
        how = self.rng.choice(("wait", "poll")) if self.polls else "wait"
        self.scripts[rank].append(Line(step, f"{how} {self.pending[rank].pop(0)}"))

    def call(self, rank, step, call, number, blocking):
        line = Line(step, call=call, number=number)
        if not blocking and self.rng.random() < self.started:
            line.slot = step % 16
            while len(self.pending[rank]) >= 8 or line.slot in self.pending[rank]:
                self.end(rank, step)
            self.pending[rank].append(line.slot)
        self.scripts[rank].append(line)
        if self.pending[rank] and self.rng.random() < 0.4:
            self.end(rank, step)


def write_scripts(rng, program, thread, jitter=0.0, started=0.25, polls=True):
    """Every rank follows the steps of the thread."""
    numbers = dict.fromkeys(thread.groups, 0)
    writer = Writer(rng, thread, sorted({rank for group in thread.groups for rank in program.groups[group]}), started, polls)
    for index, step in enumerate(thread.steps):
        message = next(iter(step.calls.values())).kind in ("send", "recv")
        numbers[step.group] += not message
        for rank, call in step.calls.items():
            if rng.random() < jitter:
                pause = f"{rng.choice(('sleep', 'sleep', 'spin'))} {rng.randint(1, 4000)}"
                writer.scripts[rank].append(Line(index, pause))
            writer.call(rank, index, call, 0 if message else numbers[step.group], step.blocking)
    for rank, pending in writer.pending.items():
        while pending:
            writer.end(rank, len(thread.steps))


def draw_program(rng, backend, ranks=RANKS, minimum=2, steps=(20, 120)):
    """Ranks, groups of `minimum` members or more, threads and steps; the scripts are written later."""
    lowest = max(minimum, ranks[0])
    program = Program(rng.randint(lowest, max(lowest, ranks[1])), backend, {}, [])
    program.groups = draw_groups(rng, program.ranks, minimum)
    first = program.groups["g0"]
    first += [rank for rank in range(program.ranks) if not any(rank in members for members in program.groups.values())]
    names = list(program.groups)
    nthreads = rng.randint(1, min(3, len(names)))
    program.threads = [Thread(f"w{i}", names[i::nthreads]) for i in range(nthreads)]
    for thread in program.threads:
        for _ in range(rng.randint(*steps)):
            group = rng.choice(thread.groups)
            n = len(program.groups[group])
            calls = draw_message(rng, group, n) if rng.random() < 0.2 else draw_collective(rng, group, n)
            thread.steps.append(make_step(program, group, calls))
    return program


def job_file(program, folder, backends=""):
    """job.yaml, and the scripts, into `folder`; returns the path."""
    out = ["version: 1", f"processes: {{count: {program.ranks}}}", "groups:"]
    if backends:
        out.insert(2, backends)
    for name, members in program.groups.items():
        keys = "".join(f", {key}: {value}" for key, value in program.keys.items())
        keys += ", gpus_per_process: 1" if program.backend == "nccl" else ""
        out.append(f"  {name}: {{ranks: [{', '.join(map(str, members))}], backend: {program.backend}{keys}}}")
    out.append("workloads:")
    for thread in program.threads:
        ranks = ", ".join(map(str, thread.scripts))
        out.append(f"  - {{name: {thread.name}, plugin: ../program.so, ranks: [{ranks}], groups: [{', '.join(thread.groups)}], "
                   f"params: {{dir: \"{folder}\", name: {thread.name}}}}}")
        for rank, lines in thread.scripts.items():
            (folder / f"{thread.name}-{rank}").write_text("".join(f"{line}\n" for line in lines))
    out += program.lines
    if not any(line.startswith("timeouts") for line in program.lines):
        out.append("timeouts: {grace: 500ms}")
    path = folder / "job.yaml"
    path.write_text("\n".join(out) + "\n")
    return path
