#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs generated programs and compares the verdict of result.json with the one that the program implies. Prints TAP, a line per class.

usage: corpus.py [--core] [--faulty N] [--clean N]       environment: see README.md
- A case is CLASS/BACKEND/INDEX and a seed; both are printed with each miss, and SEED= CASE= repeat it.
- A case is exact if class, culprits, suspects, operation and field are right, and the exit code where it has one right value.
- Times are figures and are not judged.
"""
import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import draw
import faults

HERE = Path(__file__).resolve().parent
TOP = HERE.parent.parent
BUILD = Path(os.environ.get("BUILD", TOP / "build/release"))
COLLRUN = os.environ.get("COLLRUN", str(BUILD / "bin/collrun"))
SEED = os.environ.get("SEED", "1")
# Tests send signals: the sanitizers must leave them to the program.
for name in ("ASAN_OPTIONS", "TSAN_OPTIONS"):
    os.environ.setdefault(name, "handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:handle_abort=0")
REPEAT = f"SEED={SEED}" + (f" RANKS={os.environ['RANKS']}" if "RANKS" in os.environ else "")
JOBS = int(os.environ.get("JOBS", "4"))
LIMIT = 120 * faults.SLOW  # seconds of a case; a verdict that takes longer is a miss
# Of these, the ones that are built; stream is the backend template.
KNOWN = [name for name in ("shm", "tcp", "gloo") if (BUILD / f"lib/collrun/backends/libcollrun_{name}.so").exists()] + ["stream"]
BACKENDS = os.environ.get("BACKENDS", " ".join(KNOWN)).split()

RUNNING = set()  # children, which end with this program


def stop(number, _frame):
    for child in list(RUNNING):
        child.terminate()
    sys.exit(128 + number)


def compile_plugins(folder):
    include = TOP / "engine/include"
    sanitize = os.environ.get("SANITIZE", "").split()
    subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-g", "-O1", "-shared", "-fPIC", *sanitize, f"-I{include}", str(HERE / "program.c"),
                    "-o", str(folder / "program.so"), f"-L{BUILD / 'lib'}", "-lcollrun"], check=True)
    subprocess.run(["cc", "-std=c11", "-O2", "-fvisibility=hidden", "-fPIC", "-shared", *sanitize, f"-I{include}", "-o",
                    str(folder / "libcollrun_stream.so"), str(TOP / "examples/backend-template/stream.c")], check=True)


class Outcome:
    def __init__(self, name, case):
        self.name, self.case = name, case
        self.problems, self.verdict, self.text, self.ms, self.straggler = [], {}, "", None, False


def memory_group(name):
    """A new cgroup with 256 MiB; None where that is not possible."""
    for base, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(base) / f"corpus-{os.getpid()}-{name}"
        try:
            group.mkdir()
            (group / limit).write_text("256M")
            return group
        except OSError:
            if group.exists():
                group.rmdir()
    return None


def execute(case, folder):
    """Runs the job; its exit code, or None past the limit."""
    backends = f"backends: {{stream: {{path: {folder.parent}/libcollrun_stream.so}}}}" if case.program.backend == "stream" else ""
    job = draw.job_file(case.program, folder, backends)
    command = [COLLRUN, str(job), "--run-dir", str(folder / "run")]
    group = memory_group(folder.name) if case.program.limited else None
    if group:
        command = ["sh", "-c", 'echo $$ >"$0" && exec "$@"', str(group / "cgroup.procs"), *command]
    try:
        return run_command(command, folder)
    finally:
        if group:
            remove_group(group)


def remove_group(group):
    """The kernel refuses it for a moment after the last process has ended."""
    end = time.monotonic() + 5
    while True:
        try:
            return group.rmdir()
        except OSError:
            if time.monotonic() > end:
                raise
        time.sleep(0.01)


def run_command(command, folder):
    paths = [f"{BUILD}/tests/fake", *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]  # stand-in libraries of GPUs
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(paths)}
    with open(folder / "out", "wb") as out, open(folder / "err", "wb") as err:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=folder, env=environment)
        RUNNING.add(child)
        try:
            return child.wait(LIMIT)
        except subprocess.TimeoutExpired:
            child.terminate()
            try:
                child.wait(30)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            return None
        finally:
            RUNNING.discard(child)


def elapsed_ms(folder):
    """From the last mark to the first call that failed after it."""
    marks, failures = [], []
    for path in folder.glob("*.times"):
        for line in path.read_text().splitlines():
            what, at = line.split()
            (marks if what in ("mark", "end") else failures).append(int(at))
    return (min(failures) - max(marks)) / 1e6 if marks and failures else None


def matches(got, want):
    """Whether the operation of a verdict is (group, kind, number); None: any."""
    return all(w is None or g == w for g, w in zip(got, want))


def called(stderr):
    """The ranks that "ranks 1 and 3-5 call ..., rank 2 calls ..." names: the first of several that are wrong may end the job before
    the others have called."""
    ranks = set()
    for names in re.findall(r"\branks? ([0-9][-0-9, and]*) calls? ", stderr):
        for first, last in re.findall(r"(\d+)(?:-(\d+))?", names):
            ranks |= set(range(int(first), int(last or first) + 1))
    return ranks


def compare(expected, verdict, code, stderr):
    """What is wrong with a verdict, in sentences."""
    problems = []
    if verdict["class"] != expected.verdict:
        problems.append(f"class {verdict['class']}, expected {expected.verdict}")
    named = tuple(sorted(verdict["culprits"])), tuple(sorted(verdict["suspects"]))
    on_time = tuple(rank for rank in expected.culprits if rank in called(stderr)) if verdict["class"] == "mismatch" else ()
    if named not in ((expected.culprits, expected.suspects), (on_time or expected.culprits, expected.suspects)):
        problems.append(f"culprits {list(named[0])}, suspects {list(named[1])}, expected {list(expected.culprits)}, "
                        f"{list(expected.suspects)}")
    got = verdict["group"], verdict["kind"], verdict["number"]
    if expected.operations is not None and not any(matches(got, want) for want in expected.operations):
        problems.append(f"operation {got}, expected {sorted(expected.operations, key=str)}")
    if expected.fields is not None and verdict["field"] not in expected.fields:
        problems.append(f"field {verdict['field']}, expected {sorted(expected.fields)}")
    if expected.exit_code is not None and code != expected.exit_code:
        problems.append(f"exit code {code}, expected {expected.exit_code}")
    if not expected.reports and [line for line in stderr.splitlines() if "was last in" not in line]:
        problems.append("something is reported")
    return problems


def run_case(name, folder):
    kind, backend, index = name.split("/")
    rng = random.Random(f"{SEED}/{name}")
    make = faults.clean if kind == "clean" else faults.CLASSES[kind]
    case = make(rng, backend)
    outcome = Outcome(name, case)
    here = folder / name.replace("/", "-")
    here.mkdir()
    code = execute(case, here)
    outcome.text = (here / "err").read_text(errors="replace")
    outcome.straggler = "was last in" in outcome.text
    try:
        result = json.loads((here / "run/result.json").read_text())
        outcome.verdict = result["verdict"]
        outcome.problems = compare(case.expected, outcome.verdict, code, outcome.text)
        if not case.expected.reports and result["stalls"]:
            outcome.problems.append(f"stalls: {result['stalls']}")
    except (OSError, ValueError, KeyError) as error:
        outcome.problems = [f"result.json: {error!r}"]
    if code is None:
        outcome.problems.append(f"not over after {LIMIT} s")
    if case.timed:
        outcome.ms = elapsed_ms(here)
    if not os.environ.get("KEEP"):
        shutil.rmtree(here, ignore_errors=True)
    return outcome


def cases_of(faulty, clean):
    """Names of cases: every class on every backend that can have it, `faulty` in all; and correct programs."""
    pairs = [(kind, backend) for kind in faults.CLASSES for backend in faults.backends_of(kind, BACKENDS)]
    names = [f"{kind}/{backend}/{i // len(pairs)}" for i in range(faulty) for kind, backend in [pairs[i % len(pairs)]]]
    return names + [f"clean/{BACKENDS[i % len(BACKENDS)]}/{i // len(BACKENDS)}" for i in range(clean)]


def core_of():
    """A case of each class, on one backend after the other, and some correct programs."""
    names = []
    for i, kind in enumerate(faults.CLASSES):
        names.append(f"{kind}/{faults.backends_of(kind, BACKENDS[i % len(BACKENDS):] + BACKENDS)[0]}/0")
    return names + [f"clean/{backend}/{i}" for i in range(4) for backend in BACKENDS]


def impossible():
    """Classes that this machine cannot have, with the reason."""
    without = {}
    group = memory_group("probe")
    if group:
        group.rmdir()
    else:
        without["oom"] = "no memory cgroup can be made here"
    if not (BUILD / "tests/fake/libnccl.so.2").exists():
        without["device-error"] = "the stand-in libraries are not built (make fake)"
    return without


def show(outcome):
    print(f"#   {outcome.name}: {'; '.join(outcome.problems)}   ({REPEAT} CASE={outcome.name})")
    text = (outcome.verdict.get("text") or outcome.text.split("\n")[0]) if outcome.verdict else outcome.text[:300]
    print(f"#     {str(text)[:300]}")


def spread(values):
    values = sorted(values)
    return (f"{values[len(values) // 2]:.0f} ms median, {values[min(int(len(values) * 0.99), len(values) - 1)]:.0f} p99, "
            f"{values[-1]:.0f} worst of {len(values)}")


def report(outcomes, without, seconds, share):
    by_class = defaultdict(list)
    for outcome in outcomes:
        by_class[outcome.name.split("/")[0]].append(outcome)
    number = exact = faulty = 0
    for kind, items in by_class.items():
        number += 1
        bad = [o for o in items if o.problems]
        print(f"{'not ok' if bad else 'ok'} {number} - {kind}: {len(items) - len(bad)} of {len(items)} exact")
        for outcome in bad:
            show(outcome)
        if kind != "clean":
            faulty, exact = faulty + len(items), exact + len(items) - len(bad)
    for kind, reason in without.items():
        number += 1
        print(f"ok {number} - {kind} # SKIP {reason}")
    print(f"1..{number}")
    if faulty:
        print(f"# exact: {100 * exact / faulty:.2f} % ({exact} of {faulty} faulty programs, {len(by_class) - ('clean' in by_class)} classes)")
    clean = by_class.get("clean", [])
    print(f"# correct programs: {sum(bool(o.problems) for o in clean)} reports on {len(clean)}; {sum(o.straggler for o in clean)} name a "
          "slow rank")
    for what, text in (("audit", "disagreement"), ("deadlock", "deadlock")):
        for backend in ["all", *BACKENDS]:
            values = [o.ms for o in outcomes if o.case.timed == what and o.ms is not None and (backend == "all" or f"/{backend}/" in o.name)]
            if values:
                print(f"# {text}, from the last call to the first that fails, {backend}: {spread(values)}")
    print(f"# {seconds:.0f} s on {len(os.sched_getaffinity(0))} cores, {JOBS} jobs at a time, {REPEAT}")
    return exact >= share * faulty and not any(o.problems for o in clean)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--core", action="store_true", help="a part that takes less than a minute; every case must be exact")
    parser.add_argument("--faulty", type=int, default=1200)
    parser.add_argument("--clean", type=int, default=1000)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, stop)
    folder = Path(tempfile.mkdtemp(prefix="corpus."))
    begin = time.monotonic()
    try:
        compile_plugins(folder)
        without = impossible()
        wanted = os.environ.get("CASE", "").split()
        names = core_of() if arguments.core else cases_of(arguments.faulty, arguments.clean)
        names = [name for name in names if name.split("/")[0] not in without]
        if wanted:
            names = [n for w in wanted for n in ([w] if w.count("/") == 2 else [n for n in names if n.startswith(w + "/") or f"/{w}/" in n])]
        with ThreadPoolExecutor(JOBS) as pool:
            outcomes = list(pool.map(lambda name: run_case(name, folder), names))
        good = report(outcomes, without, time.monotonic() - begin, 1 if arguments.core else 0.99)
    finally:
        if os.environ.get("KEEP"):
            print(f"# kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
