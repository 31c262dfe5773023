#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a command again and again, each time with another allocation of one of its programs that fails.

usage: allocation_failures.py PREFIX ALLOCATOR PROGRAM MODE SECONDS COMMAND...
  PREFIX     an installation of collrun that nothing else uses: what still executes a file of it is left behind
  ALLOCATOR  failing_allocator.c, built
  PROGRAM    whose allocations fail: collrun, collrun-agent
  MODE       once: the Nth allocation fails; on: all from the Nth on; libcrypto: the Nth allocation of libcrypto fails
  SECONDS    how long at most: then the numbers are a sample, which begins with the first 20; 0: all numbers, however long it takes
  COMMAND    the arguments of collrun; {dir} is a new folder name for each run
  NUMBERS    in the environment: only these allocations, such as 15,2050-2064

But for the mode libcrypto, its allocations do not fail: OpenSSL 3.0 does not check some of those that it makes when it is first used,
and crashes; OpenSSL 3.6 reports one that fails within its initialization, which needs that initialization, and waits for itself.
Then collrun is killed by SIGSEGV, or hangs there, before a rank has started, and leaves nothing behind.

Each outcome must be that of the undisturbed command, with the same output and the same files, or an error that says that
memory is the cause, and exit code 125: of collrun it is one line, the only one on stderr. Prints the other outcomes, at most
MOST of them, and a line that counts.
"""
import glob, json, os, re, shutil, signal, subprocess, sys, tempfile, time

MOST, HANG_S, LOOK_S, LEAVE_S, STEP = 12, 30, 0.5, 5, 7919  # STEP: a prime that no count of allocations has as a factor
MEMORY = "([Oo]ut of memory|Cannot allocate memory)"
CODES = {"collrun": (125,), "collrun-agent": (125, 127)}
CRASHED, HANGS = -signal.SIGSEGV, "none: it hangs in libcrypto"
# pthread_create has one error, EAGAIN, for a lack of memory and for a limit of threads: the error names the thread and both causes.
THREAD = r"cannot start [^\n]*thread[^\n]*: Resource temporarily unavailable\nhint: [^\n]*memory is short"
ERROR = {"collrun": rf"\Acollrun: error: (out of memory; [^\n]*|{THREAD})\n\Z", "collrun-agent": rf"(?s)({MEMORY}.*error: .*host (here|there)|error: .*host (here|there).*{MEMORY})"}
SECRET = os.environ.get("SECRET_TOKEN") # its value is in no file
prefix, allocator, program, mode, seconds = *sys.argv[1:5], float(sys.argv[5])
command = sys.argv[6:]
scratch = tempfile.mkdtemp(prefix="allocation_failures.")
holds = [os.path.join(scratch, name) for name in ("tmp", "runtime")]
for folder in holds:
    os.mkdir(folder)


def is_left():
    """Processes that execute a file of the prefix, and files that nobody removed."""
    left = []
    for exe in glob.glob("/proc/[0-9]*/exe"):
        try:
            if os.readlink(exe).startswith(prefix + "/"):
                left.append("process " + open(exe[:-3] + "cmdline").read().replace("\0", " "))
        except OSError:
            pass
    return left + [os.path.join(path, name) for folder in holds for path, _, files in os.walk(folder) for name in files]


def shape(value):
    """A value of JSON without what differs between two runs: times, pids, sizes."""
    if isinstance(value, dict):
        return {key: shape(v) for key, v in value.items()}
    if isinstance(value, list):
        return [shape(v) for v in value]
    return type(value).__name__ if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def files(folder):
    """What a run directory says, as far as every good run says the same."""
    found = {}
    for path in glob.glob(folder + "/**", recursive=True):
        if not os.path.isfile(path):
            continue
        name, bytes = os.path.relpath(path, folder), open(path, "rb").read()
        text = bytes.decode(errors="replace")
        if SECRET and SECRET in text:
            raise ValueError(f"{name} has the secret")
        if name.endswith(".json") or name == "events.jsonl":
            try:
                lines = [json.loads(line) for line in (text.splitlines() if name == "events.jsonl" else [text])]
            except ValueError as e:
                raise ValueError(f"{name}: {e}: {bytes[:200]}")
        if name.endswith(".json"):
            found[name] = shape(lines[0])
            for key in ("run_id", "started", "ended"):
                found[name].pop(key, None)
        elif name == "events.jsonl":
            found[name] = sorted(line["event"] for line in lines)
        else:
            found[name] = text.replace(folder, "DIR")
    return found


def in_libcrypto(pid):
    stack = subprocess.run([prefix + "/libexec/collrun/collrun-stack", "--pid", str(pid)], stdout=subprocess.PIPE, text=True, check=False).stdout
    return "CRYPTO_THREAD_run_once in libcrypto.so" in stack.split("\nthread")[0]


def run(number):
    """The outcome of the command with a failure at that allocation; 0: of the undisturbed command."""
    folder = os.path.join(scratch, f"run-{number}")
    env = dict(os.environ, LD_PRELOAD=allocator, FAIL_IN=program, FAIL_LOG=os.path.join(scratch, "log"), TMPDIR=holds[0],
               XDG_RUNTIME_DIR=holds[1], GLIBC_TUNABLES="glibc.malloc.perturb=165")
    env["FAIL_BY" if mode == "libcrypto" else "FAIL_NOT"] = "libcrypto.so"
    if program == "collrun-agent":
        env["FAIL_FORK"] = "1"
    if number:
        env["FAIL_AT"] = str(number)
    if mode == "on":
        env["FAIL_ON"] = "1"
    arguments = [word.replace("{dir}", folder) for word in command]
    child = subprocess.Popen([prefix + "/bin/collrun", *arguments], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, start_new_session=True)
    code = None
    for _ in range(int(HANG_S / LOOK_S)):  # looks, not seconds: the machine may stand still, and this process with it
        try:
            out, err = child.communicate(timeout=LOOK_S)
            code = child.returncode
            break
        except subprocess.TimeoutExpired:
            pass
    if code is None:
        code = HANGS if in_libcrypto(child.pid) else "none: it hangs"
        os.killpg(child.pid, signal.SIGKILL)
        out, err = child.communicate()
    kept = files(folder)
    shutil.rmtree(folder, ignore_errors=True)
    return code, sorted(out.decode(errors="replace").replace(folder, "DIR").splitlines()), err.decode(errors="replace"), kept


def differs(a, b):
    """Where two outcomes of exit code 0 differ."""
    if a[1] != b[1]:
        return "another output: " + str([line for line in b[1] if line not in a[1]][:2] or "lines are missing")
    if a[2] != b[2]:
        return "stderr: " + b[2][:300]
    return "other files: " + ", ".join(sorted(name for name in set(a[3]) | set(b[3]) if a[3].get(name) != b[3].get(name)))


def numbers(count):
    if "NUMBERS" in os.environ:
        ranges = [part.partition("-") for part in os.environ["NUMBERS"].split(",")]
        return [n for first, _, last in ranges for n in range(int(first), int(last or first) + 1)]
    if not seconds:
        return list(range(1, count + 1))
    rest = max(count - 20, 1)
    return list(range(1, min(count, 20) + 1)) + [21 + i * STEP % rest for i in range(rest)]


good = run(0)
if good[0] != 0 or good[2]:
    sys.exit(f"the undisturbed command: {good}")
count = max(int(line.split()[1]) for line in open(os.path.join(scratch, "log")))
if count < 20:
    sys.exit(f"only {count} allocations were seen")
passed = failed = bad = crashed = 0
end = time.monotonic() + seconds
for number in numbers(count + (seconds == 0) * count // 20):
    if seconds and time.monotonic() > end:
        break
    try:
        outcome = run(number)
        same = outcome == good
        wrong = differs(good, outcome) if outcome[0] == 0 and not same else None
    except ValueError as e:
        outcome, same, wrong = (0, [], ""), False, f"files: {e}"
    if mode == "libcrypto" and outcome[0] in (CRASHED, HANGS):
        crashed += 1
        wrong = f"a rank has started: {outcome[1]}" if outcome[1] else None
    elif outcome[0] != 0:
        if outcome[0] not in CODES[program]:
            wrong = f"exit code {outcome[0]}; stderr: {outcome[2][:300]}"
        elif not re.search(ERROR[program], outcome[2]):
            wrong = f"the cause is not named: {outcome[2][:300]}"
    for _ in range(int(LEAVE_S / 0.01)):
        if not is_left():
            break
        time.sleep(0.01)
    if not wrong and is_left():
        wrong = f"left behind: {is_left()}"
    passed, failed = passed + same, failed + (not same)
    if wrong:
        bad += 1
        if bad <= MOST:
            print(f"allocation {number} of {count}: {wrong.strip()}")
shutil.rmtree(scratch, ignore_errors=True)
print(f"{passed + failed} runs of about {count} allocations: {passed} undisturbed, {failed - bad - crashed} refused, "
      + f"{crashed} crashed or waited for itself in libcrypto, " * (mode == "libcrypto") + f"{bad} wrong")
sys.exit(bad != 0)
