# SPDX-License-Identifier: Apache-2.0
"""A rank on Python alone: arrays of the standard library, requests, threads, a child of fork()."""

import array
import gc
import os
import pickle
import sys
import threading
import types
import weakref

import collrun
from collrun._arrays import dlpack_stream


def expect(what, got, want):
    if got != want:
        sys.exit(f"{what}: got {got!r}, expected {want!r}")


def refused(call):
    """The exception's name and text."""
    try:
        call()
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    return "not refused"


g = collrun.group()
n, me = g.size, g.rank
expect("identity", (me, n), (int(os.environ["COLLRUN_RANK"]), int(os.environ["COLLRUN_WORLD_SIZE"])))
expect("rank()", (collrun.rank(), collrun.world_size(), collrun.attempt()), (me, n, 0))
expect("group()", collrun.group("world") is g and "world" in collrun.groups(), True)

x = array.array("d", [1.0, me])
expect("allreduce", (g.allreduce(x) is x, list(x)), (True, [n, n * (n - 1) / 2]))
expect("allgather", memoryview(g.allgather(array.array("i", [me]))).tolist(), [[i] for i in range(n)])
b = bytearray(b"root") if me == 0 else bytearray(4)
expect("broadcast", bytes(g.broadcast(b)), b"root")
r = g.allreduce(x, "max", async_op=True)
expect("wait", r.wait(timeout=30) is x and r.test(), True)


class Held(bytearray):
    """An array that holds its request."""


held = Held(1)
held.request = g.recv(held, (me - 1) % n, async_op=True)
held = weakref.ref(held)
gc.collect()
expect("a request in flight keeps its array", held() is not None, True)
g.send(b"1", (me + 1) % n)
expect("wait", bytes(held().request.wait()), b"1")
gc.collect()
expect("an array that holds its request is freed", held(), None)
y = g.empty((2, 3), "float32")
view = memoryview(y)
view.cast("B")[:] = bytes(24)
g.allreduce(view)
expect("empty", view.tolist(), [[0.0] * 3] * 2)
expect("not contiguous", refused(lambda: g.allreduce(memoryview(x)[::-1])), "ValueError: x: is not contiguous in C order; pass a copy of it")
expect("no array", refused(lambda: g.allreduce([1]))[:9], "TypeError")
expect("no operator", refused(lambda: g.allreduce(x, 3)), "TypeError: op: must be a name such as 'sum', not 3")
for call in (lambda: g.allreduce(None), lambda: g.recv_any(None), lambda: g.sendrecv(x, me, None, me),
             lambda: g.send(x, None), lambda: g.sendrecv(x, me, array.array("d", x), None)):
    expect("None for an argument without a default", refused(call)[:9], "TypeError")

expect("no time", refused(lambda: collrun.new_group(range(n), timeout=0)), "ValueError: timeout: must be more than 0 seconds")
expect("less than nothing", refused(lambda: collrun.progress(-1))[:13], "OverflowError")
expect("more than 64 bits", refused(lambda: collrun.progress(1, 2**64))[:13], "OverflowError")

error = collrun.PeerFailedError("gone", collrun.Status.PEER_FAILED, [1])
error.add_note("step 7")
error = pickle.loads(pickle.dumps(error))
expect("a pickled error", (str(error), error.status, error.culprits, error.__notes__), ("gone", -9, [1], ["step 7"]))
for pad in "", "x":
    h = collrun.new_group(range(n))
    h.abort(pad + "é" * 1000)
    expect("a text that is cut within a character", refused(h.barrier)[:28], "AbortedError: barrier group(")

# None is no argument: only a parameter with a default takes it.
methods = ("allreduce", "reduce", "broadcast", "allgather", "gather", "reduce_scatter", "alltoall", "recv_any")
calls = [lambda m=m: getattr(g, m)(None) for m in methods]
calls += [lambda: g.send(None, me), lambda: g.recv(None, me), lambda: g.sendrecv(None, me, x, me)]
expect("None", {refused(c).split("() ")[-1] for c in calls}, {"needs the argument 'x'"})
expect("dst None", refused(lambda: g.send(x, None)), "TypeError: send() needs the argument 'dst'")
expect("y None", refused(lambda: g.sendrecv(x, me, None, me)), "TypeError: sendrecv() needs the argument 'y'")
expect("op None", g.allreduce(array.array("i", [1]), None)[0], n)

# A library whose current stream captures a CUDA graph: nothing is ordered after that stream.
class Captured:
    __module__ = "captured"

    def __dlpack_device__(self):
        return 2, 0  # CUDA


cuda = types.SimpleNamespace(is_current_stream_capturing=lambda: True)
sys.modules["captured"] = types.SimpleNamespace(cuda=cuda)
expect("a capture", refused(lambda: dlpack_stream(Captured()))[:64], "UnsupportedError: the current stream captures a CUDA graph, and ")
cuda.is_current_stream_capturing = lambda: False
expect("no capture", dlpack_stream(Captured()), 1)

# Threads: messages of several at a time, while the interpreter's lock is free.
sums = [array.array("q", [0]) for _ in range(4)]


def exchange(tag):
    for i in range(50):
        out = array.array("q", [i + me])
        g.sendrecv(out, (me + 1) % n, out_in := array.array("q", [0]), (me - 1) % n, tag=tag)
        sums[tag][0] += out_in[0] - (me - 1) % n


threads = [threading.Thread(target=exchange, args=(tag,)) for tag in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
expect("threads", [s[0] for s in sums], [sum(range(50))] * 4)

# A child of fork() is refused, and leaves the groups of its parent alone.
sys.stdout.flush()
read, write = os.pipe()
child = os.fork()
if child == 0:
    os.write(write, refused(lambda: g.barrier()).encode())
    sys.exit(0)
os.waitpid(child, 0)
text = os.read(read, 1000).decode()
expect("fork", text.startswith("InvalidError: ") and "fork" in text, True) if len(text) else sys.exit("the child wrote nothing")
g.barrier()

# finalize() leaves no view without its memory.
del y
collrun.finalize()
expect("finalize", collrun.is_initialized(), False)
for call in (g.barrier, collrun.group, lambda: g.empty(1)):
    expect("finalize", refused(call), "InvalidError: collrun.finalize() has closed the groups")
view[0, 0] = 1.0
expect("the view", view.tolist(), [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
print("done", flush=True)
