#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks in Python: the package that `command:` puts into PYTHONPATH. With numpy (PYTHON=.../venv/bin/python3 names an interpreter
# that has it) every operation, type and operator against numpy; with torch, tensors; with ray, the same program on both.
. "$(dirname "$0")/lib.sh"
. "$here/python_lib.sh"
needs "the package is not built: Python.h is missing (python3-dev)" "$home/lib/collrun/python/collrun/_collrun.abi3.so"
needs_python "Python 3.11 or later is missing" 'import sys; sys.exit(sys.version_info < (3, 11))'
or_skip "Python"
has() { "$python" -c "import $1" 2>/dev/null; }

# program COUNT FILE ARGUMENTS: a job of COUNT ranks that run it.
program() { python_job "processes: {count: $1}" "${@:2}"; }
# script COUNT: the program is read from stdin.
script() {
    cat >script.py
    program "$1" script.py
}

# ---- without any package ----
program 3 "$programs/plain.py"
ends "the standard library's arrays: runs" 0
is "the standard library's arrays: every rank" "$(sort out | tr '\n' ' ')" "[0] done [1] done [2] done "
quiet "the standard library's arrays: collrun itself says nothing"

run check "$top/configs/python.yaml"
ends "configs/python.yaml: the file is good" 0
PATH=$(dirname "$(command -v "$python")"):$PATH run "$top/configs/python.yaml"
ends "configs/python.yaml: runs" 0
is "configs/python.yaml: what it did" "$(out)" "[0] 4 ranks on shm: the sum of 4 x 65536 float32 is 10 everywhere"

cat >alone.py <<'END'
import collrun
try: collrun.rank()
except collrun.UnavailableError as e: print(int(e.status), e)
END
LD_LIBRARY_PATH='' PYTHONPATH=$home/lib/collrun/python "$python" alone.py --lr 0.1 "a b" >out 2>err
like "outside of collrun: how to start it" "$(cat out err)" \
    '^-6 collrun_init: .*start this program with `collrun job.yaml`.*command: \[[^ ]*python[^ ]*, alone\.py, --lr, "0\.1", "a b"\]'

# Its standard output is a pipe.
script 1 <<'END'
import os
print("step", 1)
print("step", 2, end="")
os.kill(os.getpid(), 9)
END
is "a killed rank has shown what it printed" "$code $(out)" "137 [0] step 1
[0] step 2"

# ---- the manual page ----
page=$top/runner/man/collrun-python.7
for n in 1 2; do
    sed -n "/BEGIN $n\$/,/END $n\$/p" "$page" | grep -v '^\.' | sed 's/\\-/-/g; s/\\(dq/"/g' >"example.$n"
done
mv example.1 sum.py
sed "s|python3|'$python'|" example.2 >sum.yaml
run sum.yaml
is "the example of collrun-python(7) runs" "$code $(sed 's/ndarray//' out)" "0 [0] [2.0, 1.0] [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]"
LD_LIBRARY_PATH='' PYTHONPATH=$home/lib/collrun/python "$python" -c 'import collrun
public = lambda o: [n for n in dir(o) if not n.startswith("_")]
print(*{n for n in [*collrun.__all__, *public(collrun.Group), *public(collrun.Request)] if not n.startswith("_")} - {"Status", "Group"})' >names 2>err
missing=$(for name in $(cat names); do grep -qw "$name" "$page" || echo "$name"; done)
is "collrun-python(7) names all calls ($(wc -w <names))" "$missing $(cat err)" " "

# ---- interruption ----
for how in call wait; do
    program 2 "$programs/interrupt.py" $how
    is "SIGINT in a $how: KeyboardInterrupt" "$(grep '^\[0\]' out)" "[0] KeyboardInterrupt"
done
rm -f raised
program 2 "$programs/interrupt.py" thread
is "SIGINT in a call where another thread has begun to use the job: KeyboardInterrupt" "$code $(out)" "0 [0] KeyboardInterrupt"
program 2 "$programs/interrupt.py" poll
is "SIGINT in wait(timeout): the request goes on" "$(out)" "[0] KeyboardInterrupt
[0] received 7"
rm -f interrupted
program 2 "$programs/interrupt.py" handler
is "SIGINT with a handler: the call goes on" "$(out)" "[0] handled
[0] received 5"
rm -f interrupted
program 2 "$programs/interrupt.py" child
is "SIGINT in a child of fork(): the call goes on" "$code $(out)" "0 [0] received 5 child 0"
program 2 "$programs/interrupt.py" before
is "SIGINT just before a call that waits: KeyboardInterrupt, and the group is whole" "$(out)" "[1] KeyboardInterrupt
[1] received 9"
program 2 "$programs/interrupt.py" before-handler
is "SIGINT just before it, with a handler: the call goes on" "$(out)" "[1] handled
[1] received 9"

# ---- the end ----
# A library that is loaded after collrun, as torch's, takes down at exit what the groups use, as CUDA's runtime: not before they are
# closed, for which rank 0 waits here.
cat >late.c <<'END'
#include <stdio.h>
#include <stdlib.h>
static void end(void) { puts("the library ends"), fflush(stdout); }
void begin(void) { atexit(end); }
END
${CC:-cc} -shared -fPIC late.c -o late.so
script 2 <<'END'
import collrun, ctypes, time
g = collrun.group()
g.barrier()
if g.rank == 0:
    ctypes.CDLL("./late.so").begin()
else:
    time.sleep(0.5)
    print("leaves", flush=True)
END
ends "an exit beside a library that was loaded later" 0
is "... which ends after the groups are closed" "$(out)" "[1] leaves
[0] the library ends"

# ---- failures ----
script 3 <<'END'
import collrun, array
g = collrun.group()
x = array.array("i", [1])
g.allreduce(x)
if g.rank == 1:
    raise LookupError("no such batch")
try:
    g.allreduce(x)
except collrun.PeerFailedError as e:
    print(e.culprits, e.status == collrun.Status.PEER_FAILED, flush=True)
    raise
END
ends "an exception: the exit code" 1
like "an exception: the rank, the text and the place" "$(err)" 'LookupError: no such batch \(script.py:6\)$'
like "an exception: the rank is the cause" "$(err)" 'error: rank 1 '
is "an exception: the others learn the culprit" "$(grep -E '^\[[02]\] \[' out | sort | tr '\n' ' ')" "[0] [1] True [2] [1] True "

script 1 <<'END'
import collrun
collrun.rank()
raise FileNotFoundError("no batch-\udcff")
END
like "an exception whose text is no UTF-8" "$(err)" 'error: rank 0 .*FileNotFoundError: no batch-\\udcff \(script.py:3\)$'

# The exception of the verdict: type, file, line, thread.
has_exception() {
    "$python" -c 'import json, sys
e = json.load(open("run/result.json"))["verdict"]["exception"]
print(e["type"], e["file"].rpartition("/")[2], e["line"], e.get("thread", "-"))' 2>&1
}
failing() { # COUNT: a program that fails, with a run directory
    cat >fails.py
    rm -rf run
    python_job "processes: {count: $1}
logging: {dir: run}" fails.py
}
failing 3 <<'END'
import array, collrun, threading
g = collrun.group()
def work():
    if g.rank == 1: raise KeyError("wte.weight")
    g.allreduce(array.array("f", [1.0]))
thread = threading.Thread(target=work, name="loader"); thread.start(); thread.join()
END
is "an exception ends a thread that others wait for: the exit code" "$code" 1
like "it is the reason" "$(err)" '^python.yaml:.*: error: .* rank 1, whose thread "loader" has ended with KeyError: .wte.weight. \(fails.py:4\)'
is "... in result.json" "$(has_exception)" "KeyError fails.py 4 loader"
failing 1 <<'END'
import collrun, sys, threading
collrun.rank()
def work(): raise OSError(5, "disk")
thread = threading.Thread(target=work); thread.start(); thread.join()
sys.exit(3)
END
like "an exception of a thread, then sys.exit(3)" "$code $(err)" 'error: rank 0 .*: OSError: \[Errno 5\] disk \(fails.py:3\)$'
failing 1 <<'END'
import collrun, json
collrun.rank()
def load(text): return json.loads(text)
errors = []
for text in "{", 3:
    try: load(text)
    except Exception as e: errors.append(e)
raise ExceptionGroup("no configuration", errors)
END
like "an exception group: its exceptions, and where they are in the program" "$(err)" \
    'error: rank 0 .*: ExceptionGroup: no configuration \(2 sub-exceptions\): json.decoder.JSONDecodeError: .* \(fails.py:3\); TypeError: .* \(fails.py:3\)$'
is "... in result.json" "$(has_exception)" "ExceptionGroup fails.py 3 -"
for exit in 'sys.exit("no checkpoint")' 'raise SystemExit("no checkpoint")'; do
    failing 2 <<END
import collrun, sys
if collrun.rank() == 1: $exit
collrun.group().barrier()
END
    like "$exit: the text" "$(err)" 'error: rank 1 .*exited with code 1; it wrote last: no checkpoint$'
done
failing 8 <<'END'
import collrun
g = collrun.group()
if g.rank == 3: raise ValueError("boom")
try: g.barrier()
except collrun.Error as e: raise RuntimeError("step 6 failed") from e
END
is "ranks that fail because of another one: one line each" "$(grep -cE '^\[[0-24-7]\] ' err) $(grep -cE '^\[[0-24-7]\] fails.py:5: RuntimeError: step 6 failed$' err)" "7 7"
like "and the cause" "$(err)" 'error: rank 3 .*: ValueError: boom \(fails.py:3\)$'
failing 2 <<'END'
import collrun
if collrun.group().rank == 0: collrun.group().recv(bytearray(1), 1)
END
like "a program that has ended early: so it is called, with its place" "$(err)" \
    '^python.yaml:.*: error: rank 0 waits in recv world#1 .* for rank 1, whose program has ended with exit code 0$'

script 2 <<'END'
import collrun, array, sys
g = collrun.group()
if g.rank == 1:
    sys.exit(7)
g.barrier()
END
ends "sys.exit(7): the exit code" 7

script 2 <<'END'
import collrun, os, threading, time
g = collrun.group()
def asleep(thread):
    with open(f"/proc/self/task/{thread}/stat") as f: return f.read().rpartition(") ")[2][0] == "S"
if g.rank == 0:
    thread = threading.Thread(target=g.barrier)
    thread.start()
    n = 0
    while n < 10:
        time.sleep(0.01)
        n = n + 1 if asleep(thread.native_id) else 0
    try: collrun.finalize()
    except collrun.InvalidError as e: print(e, flush=True)
    print(collrun.is_initialized(), flush=True)
    open("refused", "w").close()
    thread.join()
    g.barrier()
    collrun.finalize()
    print(collrun.is_initialized(), flush=True)
else:
    while not os.path.exists("refused"): time.sleep(0.01)
    g.barrier()
    g.barrier()
END
ends "finalize() beside a thread in a call: it is refused, and succeeds later" 0
is "the error, and whether the rank is a member, before and after" "$(sed 's/.*another thread is inside.*/refused/' out | tr '\n' ' ')" "refused [0] True [0] False "

script 2 <<'END'
import collrun, array
g = collrun.group()
g.allreduce(array.array("i", [1] * (1 + g.rank)))
END
like "a mismatch: both calls" "$(err)" 'error: allreduce world#1: rank 0 calls allreduce\(1 x int32, sum\), rank 1 calls allreduce\(2 x int32, sum\)'

script 2 <<'END'
import collrun, array
g = collrun.group()
try: g.allreduce(array.array("i", [1] * (1 + g.rank)))
except collrun.MismatchError as e:
    print(e.culprits, flush=True)
    raise
END
is "its culprits: of two ranks both differ" "$(sort out | tr '\n' ' ')" "[0] [0, 1] [1] [0, 1] "

script 3 <<'END'
import array, collrun, os, time
g = collrun.group()
for backend in "shm", "tcp":
    h = collrun.new_group(range(3), backend=backend, timeout=0.3)
    if g.rank == 1:
        while not all(os.path.exists(f"{backend}.{rank}") for rank in (0, 2)): time.sleep(0.01)
    try: h.allreduce(array.array("i", [1]))
    except collrun.TimeoutError as e:
        if g.rank != 1: print(backend, e.culprits, flush=True)
    open(f"{backend}.{g.rank}", "w").close()
END
is "a time-out: its culprits are those that the call waited for" "$code $(sed 's/^\[.\] //' out | sort -u | tr '\n' ' ')" "0 shm [1] tcp [1] "

script 2 <<'END'
import collrun, array
collrun.group().recv(array.array("i", [0]), 1 - collrun.rank())
END
ends "a deadlock: proven, not timed out" 124
like "a deadlock: both ranks" "$(err)" 'error: deadlock: rank 0 waits in recv world#1 .*rank 1 waits in recv'

script 2 <<'END'
import collrun, multiprocessing, os
def child(_):
    try: collrun.group().barrier()
    except collrun.Error as e: return f"{type(e).__name__}: {e}"
if __name__ == "__main__":
    collrun.group().barrier()
    with multiprocessing.get_context("fork").Pool(1) as pool:
        print(pool.map(child, [0])[0], flush=True)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(child, [0])[0], flush=True)
    collrun.group().barrier()
END
ends "multiprocessing: the parent goes on" 0
is "multiprocessing by fork: refused" "$(grep -c '\] InvalidError: .*fork' out)" 2
is "multiprocessing by spawn: refused" "$(grep -c '\] UnavailableError: ' out)" 2

# ---- arrays beside other threads ----
script 2 <<'END'
import array, collrun, ctypes, os, threading, time
g = collrun.group()
# The memory of an array that is dropped while another thread waits in the group is used again.
def address(a): return ctypes.addressof(ctypes.c_char.from_buffer(a))
def asleep(thread):
    with open(f"/proc/self/task/{thread}/stat") as f: return f.read().rpartition(") ")[2][0] == "S"
arrays = [g.empty(1000)]
def drop(main=threading.get_native_id()):
    n = 0
    while n < 10:
        time.sleep(0.01)
        n = n + 1 if asleep(main) else 0
    arrays.clear()
    open("dropped", "w").close()
if g.rank == 0:
    before = address(arrays[0])
    thread = threading.Thread(target=drop)
    thread.start()
else:
    while not os.path.exists("dropped"): time.sleep(0.01)
g.barrier()
if g.rank == 0:
    thread.join()
    print("the same memory:", address(g.empty(1000)) == before, flush=True)

# Memory is asked for while a collective is in flight, which ends when another thread has sent a message.
x, y, go = array.array("i", [1]), array.array("i", [0]), threading.Event()
def send():
    go.wait()
    g.send(x, 1)
if g.rank == 0:
    thread = threading.Thread(target=send)
    thread.start()
    request = g.allreduce(array.array("i", [1]), async_op=True)
    time.sleep(0.2)  # until it is in the backend
    go.set()
    g.empty(1000)
    print("sum:", request.wait()[0], flush=True)
    thread.join()
else:
    g.recv(y, 0)
    g.allreduce(y)
END
is "an array that is dropped in another thread" "$(grep -o 'the same memory: .*' out)" "the same memory: True"
is "an array that is made while a collective waits for another thread" "$code $(grep -o 'sum: .*' out)" "0 sum: 2"

# ---- requests that are dropped ----
script 2 <<'END'
import collrun
g = collrun.group()
class Buffer(bytearray):
    """When it is freed, messages arrive that other dropped requests wait for, and those are freed."""
    def __del__(self):
        if g.rank == 0 and self[0] == 1:
            g.send(b"go", 1)
            g.recv(bytearray(2), 1, tag=9)
            g.sendrecv(b"x", 0, bytearray(1), 0)
            freed.append(2)
freed = []
if g.rank == 0:
    for tag in 1, 2, 3:
        g.recv(Buffer(1), 1, tag=tag, async_op=True)
    g.send(b"go", 1)
    g.recv(bytearray(2), 1, tag=8)
    while not freed: g.sendrecv(b"x", 0, bytearray(1), 0)
    print("freed", flush=True)
else:
    g.recv(bytearray(2), 0)
    g.send(b"\1", 0, tag=2)
    g.send(b"xx", 0, tag=8)
    g.recv(bytearray(2), 0)
    g.send(b"\3", 0, tag=3)
    g.send(b"\3", 0, tag=1)
    g.send(b"xx", 0, tag=9)
END
is "requests that are freed while others are" "$code $(out)" "0 [0] freed"

# ---- crashes ----
for fault in 'ctypes.string_at(0)' 'os.abort()'; do
    script 2 <<END
import collrun, ctypes, os, threading
group = collrun.group()
def inner(): $fault
def outer(): inner()
group.barrier()
if collrun.rank() == 1:
    thread = threading.Thread(target=outer); thread.start(); thread.join()
group.barrier()
END
    name=${fault%(*}
    like "$name: the rank is the cause" "$(err)" 'error: rank 1 .*was killed by signal (6|11) '
    is "$name: the Python functions" "$(grep -E '^(\[1\]|  \|) ' err | grep -oE 'line [0-9]+ in (inner|outer)$' | tr '\n' ' ')" \
        "line 3 in inner line 4 in outer "
    like "$name: the frames in C" "$(err)" '^\[1\]   #0 '
done
script 2 <<'END'
import collrun, ctypes, threading
threads = [threading.Thread(target=collrun.rank) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
collrun.group().barrier()
if collrun.rank() == 1: ctypes.string_at(0)
collrun.group().barrier()
END
like "a crash where several threads have joined the job at once: the frames in C" "$(err)" '^\[1\]   #0 '
script 2 <<'END'
import faulthandler; faulthandler.enable()
import collrun, ctypes
collrun.group().barrier()
if collrun.rank() == 1: ctypes.string_at(0)
collrun.group().barrier()
END
is "a program's own faulthandler" "$(err | grep -c '^\[1\] Fatal Python error: Segmentation fault') $(err | grep -c 'the Python functions')" "1 0"

# ---- stalls ----
if [ -x "$home/libexec/collrun/collrun-stack" ]; then
    cat >stalls.py <<'END'
import array, os, collrun

def wait_for(fifo):
    open(fifo).read()

def compute():
    while not os.path.exists("computed"):
        pass

def step(g, i):
    if g.rank == 1 and i == 2:
        wait_for("batch")
    if g.rank == 1 and i == 4:
        compute()
    g.allreduce(array.array("i", [1]))

if os.environ["COLLRUN_RANK"] == "1":
    wait_for("joined")
group = collrun.group()
with open(f"pid.{group.rank}", "w") as f:
    f.write(f"{os.getpid()}\n")
for i in range(6):
    step(group, i)
END
    job stalls <<END
version: 1
processes: {count: 3}
timeouts: {stall: ${slow}s}
workloads:
  - {command: ['$python', stalls.py]}
END
    line() { grep -n "$1" stalls.py | cut -d: -f1; }
    shows() { check_within "$1" $((20 * slow)) grep -qE "$2" err; }
    it='CAUSE  rank 1 \([^ ]+, pid [0-9]+\)'
    late="$it has not called allreduce world#"
    mkfifo joined batch
    start run stalls.yaml
    shows "a stall before collrun.group(): where" \
        "^$it has not called collrun_init; it is in wait_for \(stalls\.py:$(line 'read()')\), asleep in open"
    shows "and who waits" '^WAIT   ranks 0 and 2 -> collrun_init -> rank 1, for [0-9.]+ s'
    timeout $((20 * slow)) sh -c ': >joined'
    shows "a stall: where" "^${late}3 .*; it is in wait_for \(stalls\.py:$(line 'read()')\), asleep in open"
    shows "the caller" "^         step \(stalls\.py:$(line '("batch")')\)$"
    shows "up to the module" "^         <module> \(stalls\.py:$(line 'step(group')\)$"
    shows "where the others wait" "^WAIT .*; rank [02] calls it in step \(stalls\.py:$(line 'g.allreduce')\)$"
    unlike "frames of the interpreter are not shown" "$(err)" '_PyEval_EvalFrame|Py_RunMain'
    kill -STOP "$(cat pid.1)"
    shows "a stopped rank: the report continues" "^$late.*stopped by a signal"
    kill -CONT "$(cat pid.1)"
    timeout $((20 * slow)) sh -c ': >batch'
    shows "a rank that runs: where" "^${late}5 .*; it is in compute \(stalls\.py:[0-9]+\), running"
    touch computed
    finish $((20 * slow))
    ends "the signal for the frames does no harm" 0
else
    skip "stalls" "built without libdw"
fi

# ---- numpy, torch, ray ----
if has numpy; then
    for count in 1 2 3; do
        program $count "$programs/oracle.py"
        ends "numpy: $count ranks" 0
        is "numpy: every check of $count ranks" "$(grep -cE '\] [0-9]{3,} checks passed$' out)" $count
    done
    program 3 "$programs/raylike.py"
    ends "collrun.ray: runs" 0
    sed 's/^\[.\] //' out | sort >collrun.ray
    check "collrun.ray: every function" test "$(wc -l <collrun.ray)" -ge 50
    for count in 3 1; do
        PYTHON=$python run "$top/configs/ray.yaml" -n $count
        ends "configs/ray.yaml, $count ranks: runs" 0
        is "configs/ray.yaml, $count ranks: converges" "$(tail -n 1 out)" "[0] converged: the parameters are right to 3 decimals"
        grep -o 'loss .*' out >"loss.$count"
    done
    is "configs/ray.yaml: the loss of one process" "$(cat loss.3)" "$(cat loss.1)"
else
    skip "numpy" "$python has no numpy"
fi
run check "$top/configs/torch_env.yaml"
ends "configs/torch_env.yaml: the file is good" 0
if has torch; then
    PATH=$(dirname "$(command -v "$python")"):$PATH run "$top/configs/torch_env.yaml"
    is "configs/torch_env.yaml: a script for torchrun runs as it is" "$code $(out)" "0 [0] 4 ranks: y = 3.000 x + 1.000"
    sed 's/if rank == 0:/if rank == 1:\n    os._exit(9)\nif rank == 0:/; s/^dist.destroy/dist.barrier()\ndist.destroy/' \
        "$top/examples/python/torch_env.py" >exits.py
    program 2 exits.py
    ends "a rank of it exits: its code" 9
    like "it is named, not the rank that fails with it" "$(err)" '^collrun: error: rank 1 .*exited with code 9$'
    program 2 "$programs/oracle.py" torch
    ends "torch: tensors" 0
    is "torch: every check" "$(grep -cE '\] [0-9]{2,} checks passed$' out)" 2
    PYTHON=$python run "$top/configs/ddp.yaml" -n 2
    ends "configs/ddp.yaml: runs" 0
    like "configs/ddp.yaml: it recognizes the digits" "$(tail -n 1 out)" '^\[0\] converged: loss [0-9.]+, accuracy (0\.9[5-9][0-9]|1\.000)$'
else
    skip "torch" "$python has no torch"
fi
if has ray; then
    PYTHONPATH=$programs timeout 300 "$python" "$programs/raylike_peer.py" 3 2>err | sort >ray.out
    check "ray: the same program prints the same" diff ray.out collrun.ray
else
    skip "ray" "$python has no ray"
fi

# ---- pip ----
if [ -z "${PYTHON:-}" ]; then
    skip "pip" "only with PYTHON, as it takes long"
elif has venv && has ensurepip && "$python" -m venv venv >/dev/null 2>&1; then
    PIP_NO_INDEX=1 venv/bin/pip install -q "$top/engine/python" >pip.log 2>&1
    is "pip installs it from the tree, without a network" "$(cd / && "$tmp/venv/bin/python3" -c 'import collrun; print(collrun.__version__)' 2>&1)" \
        "$("$COLLRUN" --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -n 1)"
else
    skip "pip" "$python has no venv"
fi
done_testing
