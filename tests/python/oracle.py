# SPDX-License-Identifier: Apache-2.0
"""A rank that compares every operation of collrun with numpy, for all element types and operators.

Every rank knows the input of all ranks (data()), so that numpy computes the result that is expected.
The last line is "N checks passed"; the first difference ends the rank. With the argument "torch", only tensors are compared; with
"device PREFIX LIBRARY GROUP", arrays in memory of a device (device_arrays.py) on that group.
"""

import sys

import numpy as np

import collrun

torch = None
if "torch" in sys.argv[1:]:
    import torch
try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

device = None
if "device" in sys.argv[1:]:
    import device_arrays as device

    device.use(*sys.argv[2:4])

g = collrun.group(sys.argv[4] if device else None)
n, me = g.size, g.rank
checks = 0

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
FLOATS = ["float16", "float32", "float64"]
ARITHMETIC = ["sum", "prod", "min", "max", "avg"]
BITS = ["band", "bor", "bxor", "land", "lor", "lxor"]


def same(what, got, want):
    global checks
    checks += 1
    got, want = np.asarray(got), np.asarray(want)
    # NCCL multiplies by 1/n.
    equal = np.allclose(got, want, rtol=2e-3) if device and "avg" in what else np.array_equal(got, want)
    if got.shape != want.shape or got.dtype != want.dtype or not equal:
        sys.exit(f"rank {me}: {what}: got {got.dtype}{got.shape} {got!r}, expected {want.dtype}{want.shape} {want!r}")


def raises(what, error, call):
    global checks
    checks += 1
    try:
        call()
    except error as e:
        return e
    sys.exit(f"rank {me}: {what}: no {error}")


def data(rank, shape, dtype):
    """Small values, so that every order of summing gives the same bits."""
    values = (np.arange(int(np.prod(shape))) * 3 + 5 * rank) % 4
    return (values % 2 if dtype == "bool" else values).astype(dtype).reshape(shape)


def put(values):
    """An array with these values, for an operation."""
    return device.put(values) if device else values.copy()


def combined(parts, op, dtype):
    stack = np.stack(parts)
    if op == "sum":
        return stack.any(0) if dtype == "bool" else stack.sum(0, dtype=dtype)
    if op == "prod":
        return stack.all(0) if dtype == "bool" else stack.prod(0, dtype=dtype)
    if op == "avg":
        if dtype == "bool":
            return stack.all(0) if len(parts) == 1 else np.zeros_like(parts[0])
        wide = "float32" if dtype == "float16" else dtype
        total = stack.sum(0, dtype=wide)
        return (total / wide_type(wide, len(parts))).astype(dtype) if dtype in FLOATS else total // total.dtype.type(len(parts))
    functions = {"min": np.minimum, "max": np.maximum, "band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor,
                 "land": np.logical_and, "lor": np.logical_or, "lxor": np.logical_xor}
    return functions[op].reduce(stack, 0).astype(dtype)


def wide_type(name, value):
    return np.dtype(name).type(value)


def reductions(dtype, op, shape=(2, 3)):
    parts = [data(r, shape, dtype) for r in range(n)]
    want = combined(parts, op, dtype)
    label = f"{op} of {dtype}"
    x = put(parts[me])
    assert g.allreduce(x, op) is x
    same(f"allreduce in place, {label}", x, want)
    x, y = put(parts[me]), put(np.zeros(shape, dtype))
    assert g.allreduce(x, op=op, out=y) is y
    same(f"allreduce, {label}", y, want)
    same(f"the input of allreduce, {label}", x, parts[me])
    root = n - 1
    got = g.reduce(x, root, op)
    same(f"reduce, {label}", x, want if me == root else parts[me])
    assert got is (x if me == root else None)
    x = put(parts[me])
    g.scan(x, op)
    same(f"scan, {label}", x, combined(parts[: me + 1], op, dtype))
    rows = [data(r, (2 * n, 3), dtype) for r in range(n)]
    same(f"reduce_scatter, {label}", g.reduce_scatter(put(rows[me]), op), combined(rows, op, dtype)[2 * me : 2 * me + 2])
    x = put(parts[me])
    g.exscan(x, op)
    same(f"exscan, {label}", x, combined(parts[:me], op, dtype) if me else parts[0])


def moves(dtype):
    parts = [data(r, (2, 3), dtype) for r in range(n)]
    x = put(parts[me])
    assert g.broadcast(x, root=n - 1) is x
    same(f"broadcast of {dtype}", x, parts[n - 1])
    x = put(parts[me])
    same(f"allgather of {dtype}", g.allgather(x), np.stack(parts))
    y = put(np.zeros((n, 2, 3), dtype))
    assert g.allgather(x, out=y) is y
    same(f"allgather of {dtype} to out", y, np.stack(parts))
    got = g.gather(x, root=n - 1)
    if me == n - 1:
        same(f"gather of {dtype}", got, np.stack(parts))
    else:
        assert got is None
    rows = [data(r, (2 * n, 2), dtype) for r in range(n)]
    got = g.scatter(put(rows[0]) if me == 0 else None, like=put(np.zeros((2, 2), dtype)))
    same(f"scatter of {dtype}", got, rows[0][2 * me : 2 * me + 2])
    got = put(np.zeros((2, 2), dtype))
    assert g.scatter(put(rows[n - 1]) if me == n - 1 else None, n - 1, out=got) is got
    same(f"scatter of {dtype} to out", got, rows[n - 1][2 * me : 2 * me + 2])
    same(f"alltoall of {dtype}", g.alltoall(put(rows[me])), np.concatenate([r[2 * me : 2 * me + 2] for r in rows]))
    y = put(np.zeros((2, 3), dtype))
    assert g.sendrecv(x, (me + 1) % n, y, (me - 1) % n, tag=7) is y
    same(f"sendrecv of {dtype}", y, parts[(me - 1) % n])


def uneven():
    counts = [(r * 2 + 1) % 4 for r in range(n)]
    begin = [sum(counts[:r]) for r in range(n)]
    mine = slice(begin[me], begin[me] + counts[me])
    parts = [data(r, (counts[r], 3), "int32") for r in range(n)]
    whole = np.concatenate(parts)
    same("allgather, uneven", g.allgather(put(parts[me]), counts=counts), whole)
    got = g.gather(put(parts[me]), root=0, counts=counts)
    if me == 0:
        same("gather, uneven", got, whole)
    got = g.scatter(put(whole) if me == 0 else None, like=put(parts[me]), counts=counts)
    same("scatter, uneven", got, parts[me])
    full = [data(r, (sum(counts), 2), "float32") for r in range(n)]
    same("reduce_scatter, uneven", g.reduce_scatter(put(full[me]), counts=counts), combined(full, "sum", "float32")[mine])
    to = [[(r + 2 * k) % 3 for k in range(n)] for r in range(n)]
    sent = [data(r, (sum(to[r]), 2), "int64") for r in range(n)]
    want = np.concatenate([sent[r][sum(to[r][:me]) : sum(to[r][: me + 1])] for r in range(n)])
    got = g.alltoall(put(sent[me]), send_counts=to[me], recv_counts=[to[r][me] for r in range(n)])
    same("alltoall, uneven", got, want)
    raises("counts of the wrong length", ValueError, lambda: g.allgather(parts[me], counts=[1] * (n + 1)))
    raises("counts that do not fit", ValueError, lambda: g.reduce_scatter(whole[:0], counts=[1] * n))
    raises("a negative count", ValueError, lambda: g.allgather(parts[me], counts=[-1] * n))


def requests():
    for shape in (1,), (1000, 7):
        x = [data(r, shape, "float64") for r in range(n)]
        mine = [put(x[me]) for _ in range(5)]
        pending = [g.allreduce(m, async_op=True) for m in mine]
        pending.append(g.allgather(put(x[me]), async_op=True))
        for m, r in zip(mine, pending):
            assert r.wait(timeout=20) is m and r.wait() is m and r.test()
            same("a request's allreduce", m, combined(x, "sum", "float64"))
        same("a request's allgather", pending[-1].wait(), np.stack(x))
    # The request keeps the buffer alive; a dropped one keeps it until the operation has ended.
    kept = g.allgather(put(np.full(100000, me, "int32")), async_op=True)
    same("buffers that only the request holds", np.asarray(kept.wait())[:, 7], np.arange(n, dtype="int32"))
    for _ in range(20):
        g.allreduce(put(np.full(3000, me, "int32")), async_op=True)
    g.barrier()
    y = put(np.zeros(1, "int32"))
    r = g.recv(y, (me - 1) % n, tag=3, async_op=True)
    raises("a wait with a time-out", TimeoutError, lambda: r.wait(timeout=0.05))
    raises("the same as collrun's", collrun.TimeoutError, lambda: r.wait(timeout=0))
    assert not r.test()
    g.barrier()
    sent = g.send(put(np.array([me], "int32")), (me + 1) % n, tag=3, async_op=True)
    r.wait(5)
    sent.wait(5)
    same("a receive after a time-out of wait", y, np.array([(me - 1) % n], "int32"))
    r = g.recv(y, me, tag=9, async_op=True)
    assert r.cancel() and r.test() and r.wait() is None
    sent = g.send(put(np.array([me], "int32")), (me + 1) % n, tag=4, async_op=True)
    assert g.recv_any(y, tag=4) == (me - 1) % n and np.asarray(y)[0] == (me - 1) % n
    sent.wait(5)
    r = g.recv_any(y, tag=collrun.ANY_TAG, async_op=True)
    g.send(put(np.array([me + 9], "int32")), (me + 1) % n, tag=4)
    assert r.wait() == (me - 1) % n and np.asarray(y)[0] == (me - 1) % n + 9


def refusals():
    x = np.zeros((4, 4), "float32")
    for what, error, call in [
        ("a transposed array", ValueError, lambda: g.allreduce(np.zeros((3, 4)).T)),
        ("every second row", ValueError, lambda: g.allreduce(x[::2])),
        ("a read-only result", ValueError, lambda: g.allreduce(b"12345678")),
        ("complex numbers", TypeError, lambda: g.allreduce(np.zeros(3, "complex64"))),
        ("the other byte order", TypeError, lambda: g.allreduce(np.zeros(3, ">f4"))),
        ("objects", (TypeError, ValueError), lambda: g.allreduce(np.array([None]))),
        ("a masked array", TypeError, lambda: g.allreduce(np.ma.array(x, mask=x > 0))),
        ("a masked array as a result", TypeError, lambda: g.allreduce(x, out=np.ma.array(x))),
        ("times", TypeError, lambda: g.allreduce(np.zeros(3, "datetime64[s]"))),
        ("a list", TypeError, lambda: g.allreduce([1.0])),
        ("an unknown operator", ValueError, lambda: g.allreduce(x, "median")),
        ("bits of floats", collrun.InvalidError, lambda: g.allreduce(x, "bxor")),
        ("a root out of range", ValueError, lambda: g.broadcast(x, root=n)),
        ("a peer out of range", ValueError, lambda: g.send(x, -1)),
        ("a negative tag", ValueError, lambda: g.send(x, 0, tag=-1)),
        ("an out of another type", ValueError, lambda: g.allreduce(x, out=np.zeros((4, 4)))),
        ("an out of another size", ValueError, lambda: g.allgather(x, out=np.zeros((n, 4), "float32"))),
        ("rows that do not divide", ValueError, lambda: g.alltoall(np.zeros(n + 1 if n > 1 else 0)) if n > 1 else g.alltoall(np.float32(1))),
        ("a scalar to scatter", ValueError, lambda: g.reduce_scatter(np.array(1.0))),
        ("no argument", TypeError, lambda: g.allreduce()),
        ("too many arguments", TypeError, lambda: g.barrier(False, 2)),
        ("an unknown parameter", TypeError, lambda: g.allreduce(x, root=3)),
        ("a value given twice", TypeError, lambda: g.allreduce(x, x=x)),
        ("scatter without a shape", ValueError, lambda: g.scatter(None, root=(me + 1) % n)),
        ("a group that does not exist", collrun.NotFoundError, lambda: collrun.group("nothing")),
        ("a dtype that does not exist", ValueError, lambda: g.empty(3, "complex64")),
        ("an element type of empty", ValueError, lambda: g.empty((-1,))),
    ]:
        raises(what, error, call)
    for dtype, words in ("complex128", "for complex128;"), ("U3", "for strings;"), (">f4", "for float32 in the other byte order;"), ("O", "for objects;"):
        assert words in str(raises(dtype, TypeError, lambda: g.allreduce(np.zeros(3, dtype))))
    e = raises("a status", collrun.Error, lambda: collrun.group("nothing"))
    assert e.status == collrun.Status.NOT_FOUND == -2 and e.culprits == [] and "nothing" in str(e)


def groups():
    h = collrun.new_group(list(range(n))[::-1], name="back", timeout=30, check="strict")
    assert (h.rank, h.size, h.name, h.timeout) == (n - 1 - me, n, "back", 30.0) and collrun.group("back") is h
    assert h.ranks == tuple(range(n))[::-1]
    same("allgather of a group of mine", h.allgather(np.array([me], "int32"))[:, 0], np.arange(n, dtype="int32")[::-1])
    s = h.split(me % 2, key=me)
    assert s.ranks == tuple(range(me % 2, n, 2))
    assert h.split(-1) is None
    a = h.empty((n, 5), "float32")
    raises("destroy with an array alive", BufferError, h.destroy)
    view = np.asarray(a)
    del a
    raises("destroy with a view alive", BufferError, h.destroy)
    view[...] = data(me, (n, 5), "float32")
    h.allreduce(view)
    same("allreduce of memory of empty()", view, combined([data(r, (n, 5), "float32") for r in range(n)], "sum", "float32"))
    del view
    s.destroy()
    h.destroy()
    h.destroy()
    e = raises("a destroyed group", collrun.InvalidError, lambda: h.allreduce(np.zeros(1)))
    assert "destroyed" in str(e)
    assert collrun.group() is g and collrun.group("world") is g


def arrays():
    for dtype in INTEGERS + FLOATS + ["bool"]:
        a = g.empty((2, 3), dtype)
        assert type(a) is np.ndarray and a.shape == (2, 3) and a.dtype == dtype and a.nbytes == 6 * np.dtype(dtype).itemsize
        v = np.asarray(a)
        assert v.dtype == dtype and v.shape == (2, 3)
        v[...] = data(me, (2, 3), dtype)
        g.allreduce(a)
        want = combined([data(r, (2, 3), dtype) for r in range(n)], "sum", dtype)
        same(f"allreduce of an Array of {dtype}", a, want)
        same(f"DLPack of an Array of {dtype}", np.from_dlpack(a), want)
        same(f"allgather of an Array of {dtype}", g.allgather(a), np.stack([want] * n))
    assert g.empty(5).shape == (5,) and g.empty(()).shape == () and g.empty((2, 0)).nbytes == 0
    assert g.empty(1, np.dtype("int16")).dtype == "int16" and g.empty(1, np.float64).dtype == "float64"


def tensors():
    names = ["int8", "uint8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "bool"]
    for name in names:
        dtype = getattr(torch, name)
        parts = [torch.from_numpy(data(r, (2, 3), "bool" if name == "bool" else "float32")).to(dtype) for r in range(n)]
        x = parts[me].clone()
        assert g.allreduce(x, "max") is x
        want = torch.stack(parts).float().max(0).values.to(dtype)
        same(f"allreduce of torch.{name}", x.float().numpy(), want.float().numpy())
        y = g.allgather(parts[me])
        assert isinstance(y, torch.Tensor) and y.dtype == dtype and y.shape == (n, 2, 3)
        same(f"allgather of torch.{name}", y.float().numpy(), torch.stack(parts).float().numpy())
        a = torch.from_dlpack(g.empty((2, 3), dtype))
        assert a.dtype == dtype
        a.copy_(parts[me])
        g.broadcast(a, n - 1)
        same(f"broadcast of empty() as torch.{name}", a.float().numpy(), parts[n - 1].float().numpy())
        if name == "bfloat16":
            raw = g.empty(4, "bfloat16")
            torch.from_dlpack(raw).fill_(2)
            g.allreduce(raw)
            same("allreduce of an Array of bfloat16", torch.from_dlpack(raw).float().numpy(), np.full(4, 2.0 * n, "float32"))
    raises("a transposed tensor", ValueError, lambda: g.allreduce(torch.zeros(3, 4).t()))
    e = raises("a negated view", ValueError, lambda: g.allreduce(torch._neg_view(torch.ones(3))))
    assert "resolve_neg" in str(e)
    mixed = g.allgather(torch.ones(3, dtype=torch.int32), async_op=True).wait()
    assert mixed.shape == (n, 3)


def everything():
    for kind in INTEGERS + FLOATS + ["bool"]:
        for operator in ARITHMETIC + ([] if kind in FLOATS else BITS):
            reductions(kind, operator)
        moves(kind)
    reductions("float64", "sum", (300, 70))
    reductions("float32", "sum", ())
    reductions("int32", "max", (0, 4))
    if ml_dtypes:
        ones = np.full((2, 2), 1 + me, ml_dtypes.bfloat16)
        assert g.allreduce(ones) is ones
        same("allreduce of ml_dtypes.bfloat16", ones.astype("float32"), np.full((2, 2), n * (n + 1) / 2, "float32"))
    uneven()
    requests()
    refusals()
    groups()
    arrays()


def bfloat16():
    """Ones, by their bits: numpy has no such type."""
    one, total = 0x3F80, {1: 0x3F80, 2: 0x4000, 3: 0x4040, 4: 0x4080}[n]
    x = device.put(np.full((2, 3), one, "uint16"), "bfloat16")
    assert g.allreduce(x) is x
    same("allreduce of bfloat16", x, np.full((2, 3), total, "uint16"))
    y = g.allgather(x)
    assert y.dtype == "bfloat16"
    same("allgather of bfloat16", y, np.full((n, 2, 3), total, "uint16"))


def device_refusals(owned):
    x = device.put(np.zeros((4, 4), "float32"))
    e = raises("a transposed array", ValueError, lambda: g.allreduce(device.Array((4, 4), "float32", strides=(1, 4))))
    assert "contiguous" in str(e)
    e = raises("a read-only result", ValueError, lambda: g.allreduce(device.Array((4,), "float32", read_only=True)))
    assert "read-only" in str(e)
    g.allreduce(device.Array((4,), "float32", read_only=True), out=device.put(np.zeros(4, "float32")))
    host = np.zeros(4, "float32")
    e = raises("memory that no kind knows", ValueError,
               lambda: g.allreduce(device.Array((4,), "float32", kind=device.EXTENSION, memory=host.ctypes.data)))
    assert "neither this rank nor the group has devices" in str(e), e
    if "(host)" not in g.backend and collrun_works_on_devices():
        raises("memory of the host", collrun.UnsupportedError, lambda: g.allreduce(host))
        raises("two kinds of memory", (collrun.UnsupportedError, collrun.InvalidError), lambda: g.allreduce(x, out=np.zeros((4, 4), "float32")))
    if owned > 1:
        with device.Device(1):
            far = device.put(np.zeros(4, "float32"))
        if collrun_works_on_devices():
            e = raises("another device of the rank", collrun.InvalidError, lambda: g.allreduce(far))
            assert "GPU" in str(e), e
        else:  # a result is on the device of its argument
            assert g.allgather(far).device.number == 1


def collrun_works_on_devices():
    return g.backend not in ("shm", "tcp", "gloo")


def device_memory():
    """Group.empty() of a group that works on devices."""
    if g.backend not in ("nccl", "hccl"):
        return
    a = g.empty((2, 3), "float32")
    assert a.__dlpack_device__() == (device.CUDA if g.backend == "nccl" else device.EXTENSION, 0)
    raises("the buffer protocol of it", BufferError, lambda: memoryview(a))
    view = device.from_dlpack(a, "float32").set(data(me, (2, 3), "float32"))
    g.allreduce(view)
    same("allreduce of memory of empty()", view, combined([data(r, (2, 3), "float32") for r in range(n)], "sum", "float32"))
    g.allreduce(a)
    got = g.allgather(a)
    same("allgather of an Array", device.from_dlpack(got, "float32"), np.stack([np.asarray(view)] * n))


class HasRefusingBuffer(np.ndarray):
    """As arrays of cupy and jax are: they have the buffer protocol, which refuses memory of a device."""

    def __new__(cls, array):
        self = super().__new__(cls, 1, "datetime64[s]")
        self.array = array
        self.__dlpack_device__, self.__dlpack__ = array.__dlpack_device__, array.__dlpack__
        return self


def refusing_buffer():
    x = device.put(np.full(7, me, "int32"))
    raises("the buffer protocol", ValueError, lambda: memoryview(HasRefusingBuffer(x)))
    g.allreduce(HasRefusingBuffer(x))
    same("allreduce of an array whose buffer protocol refuses", x, np.full(7, n * (n - 1) // 2, "int32"))


def devices():
    for kind in INTEGERS + FLOATS + ["bool"]:
        for operator in ARITHMETIC + ([] if kind in FLOATS else BITS):
            reductions(kind, operator)
        moves(kind)
    bfloat16()
    reductions("float32", "sum", (300, 70))
    reductions("int32", "max", (0, 4))
    uneven()
    requests()
    x = device.put(np.ones(5000, "float32"))
    for pending in [g.allreduce(x, async_op=True) for _ in range(3)]:
        pending.wait()
    same("three allreduces in flight on one array", x, np.full(5000, n**3, "float32"))
    refusing_buffer()
    device_refusals(collrun.gpu_count())
    device_memory()
    g.barrier()
    assert {stream for kind, stream in device.asked if kind == device.CUDA} <= {1}
    assert {stream for kind, stream in device.asked if kind == device.EXTENSION} <= {None}


devices() if device else tensors() if torch else everything()
g.barrier()
print(f"{checks} checks passed", flush=True)
