# SPDX-License-Identifier: Apache-2.0
"""A rank on Python alone: arrays of the standard library, requests, threads, a child of fork()."""

import array
import ctypes
import gc
import os
import pickle
import sys
import threading
import types
import weakref

sys.modules["numpy"] = None  # as if it were not installed

import collrun  # noqa: E402
from collrun import _errors  # noqa: E402
from collrun._arrays import dlpack_stream  # noqa: E402


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

# ---- the elements of an Array ----
a = g.empty((3, 4), "int32")
a[:] = 1
a[0] = [1, 2, 3, 4]
a[1:, ::2] = 5
a[2] = array.array("i", range(4))
a[-1, -1] = me
expect("elements", a.tolist(), [[1, 2, 3, 4], [5, 1, 5, 1], [0, 1, 2, me]])
expect("an element, a row, a column", (a[1, 2], a[0].tolist(), a[..., 1].tolist()), (5, [1, 2, 3, 4], [2, 1, 1]))
expect("len, shape, dtype", (len(a), len(a[0, 1:]), a.shape, a[:, 1].shape, a.dtype), (3, 3, (3, 4), (3,), "int32"))
expect("iteration", [list(row) for row in a[:2]], [[1, 2, 3, 4], [5, 1, 5, 1]])
expect("repr", repr(a[0]), "<collrun.Array int32 (4,) of group world: [1, 2, 3, 4]>")
g.allreduce(a[1:3])
expect("rows of it in an operation", a.tolist(), [[1, 2, 3, 4], [5 * n, n, 5 * n, n], [0, n, 2 * n, n * (n - 1) // 2]])
expect("a column of it", refused(lambda: g.allreduce(a[:, 0])), "ValueError: x: is not contiguous in C order; pass a copy of it")
a[:2] = a[1:]
expect("parts that overlap", a[:2].tolist(), [[5 * n, n, 5 * n, n], [0, n, 2 * n, n * (n - 1) // 2]])
for what, call, error in [
    ("an index out of range", lambda: a[3], "IndexError: index 3 is out of range: axis 0 has the length 3"),
    ("too many indices", lambda: a[0, 0, 0], "IndexError: too many indices: the array has 2 axes"),
    ("no index", lambda: a["x"], "TypeError: an index is an integer, a slice or ..., not str"),
    ("a value that does not fit", lambda: a.__setitem__(0, [1, 2]), "ValueError: a value of 2 is assigned to 4 elements"),
    ("del", lambda: a.__delitem__(0), "TypeError: elements of an array cannot be deleted"),
]:
    expect(what, refused(call), error)
for dtype, value, want in [("float16", 0.1, 0.0999755859375), ("bfloat16", 3.14159, 3.140625), ("bool", 2, True), ("uint64", 2**64 - 1, 2**64 - 1)]:
    b = g.empty(3, dtype)
    b[:] = value
    expect(f"an element of {dtype}", (b[2], b.tolist()), (want, [want] * 3))
b = g.empty((), "float64")
b[()] = 1.5
expect("no axes", (b[()], b.tolist()), (1.5, 1.5))
b = a[0]
del a
expect("a view keeps the memory", (b[1], refused(collrun.new_group([me]).destroy)), (n, "not refused"))
del b

# ---- names and types that collrun does not have ----
for name, hint in [
    ("all_reduce", "did you mean allreduce()?"), ("bcast", "did you mean broadcast()?"), ("Allgatherv", "did you mean allgather()?"),
    ("isend", "did you mean send(..., async_op=True)?"), ("all_to_all_single", "did you mean alltoall()?"),
    ("Get_rank", "did you mean rank, which is no function?"), ("bariier", "did you mean barrier?"),
]:  # fmt: skip
    expect(name, refused(lambda: getattr(g, name)), f"AttributeError: 'collrun.Group' object has no attribute '{name}'; {hint}")
for name, hint in [
    ("all_reduce", "did you mean collrun.group().allreduce()?"), ("size", "did you mean collrun.world_size()?"),
    ("init", "no call begins: the first one that needs the job joins it"), ("COMM_WORLD", "collrun.group() is the group of all ranks"),
    ("get_rank", "did you mean collrun.rank()?"), ("torch", "import collrun.torch loads it"), ("local_rnak", "did you mean local_rank?"),
]:  # fmt: skip
    expect(name, refused(lambda: getattr(collrun, name)), f"AttributeError: module 'collrun' has no attribute '{name}'; {hint}")
expect("neither", (hasattr(g, "frobnicate"), hasattr(collrun, "frobnicate"), hasattr(g, "__array__")), (False, False, False))
for what, value in [("strings", array.array("u", "ab")), ("long double", (ctypes.c_longdouble * 2)()),
                    ("float32 in the other byte order", (ctypes.c_float.__ctype_be__ * 2)())]:
    expect(what, refused(lambda: g.allreduce(value)).partition(";")[0], f"TypeError: x: collrun has no element type for {what}")

# ---- who is to blame ----
for status, text, want in [
    (-7, "allreduce world#4: ranks 0-2 and 4 call allreduce(8 x int32, sum), rank 3 calls allreduce(8 x int32, max)", [3]),
    (-7, "allreduce world#4: rank 0 calls allreduce(8 x int32, sum), rank 2 calls allreduce(8 x int32, max)", [0, 2]),
    (-7, "allreduce world#4: rank 3 calls allreduce(8 x int32, sum), ranks 0-2 have ended without it", [3]),
    (-8, "allreduce world#4: rank 1 waited 1.0 s for ranks 2 and 5-6", [2, 5, 6]),
    (-8, "group sub: rank 2 did not join within 4.0 s (1 of 3 members)", [2]),
    (-10, "allreduce world#4: rank 1 and ranks 0 and 2-3 differ in operation 4 of group world", [1]),
    (-10, "the group was aborted", []), (-1, "rank 9 is no member", []),
]:  # fmt: skip
    expect(text, _errors.make(status, text, ()).culprits, want)
expect("a peer that has failed", _errors.make(-9, "rank 4 waited 1 s for rank 2", (4,)).culprits, [4])

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
