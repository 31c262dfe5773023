# SPDX-License-Identifier: Apache-2.0
"""A program on the functions of ray.util.collective. results() returns what it finds,
so that the same function runs under Ray (raylike_peer.py) and, as this program does, on collrun."""

import numpy as np


def results(col, types, rank, world_size, wrap):
    """`wrap` makes the tensors of the library under test from numpy's."""
    found = []

    def keep(what, tensor):
        found.append(f"{rank} {what}: {np.asarray(tensor).tolist()}")

    def tensor(*shape):
        return wrap(np.arange(1, 1 + int(np.prod(shape)), dtype="float32").reshape(shape) * (rank + 1))

    col.init_collective_group(world_size, rank, backend="gloo", group_name="default")
    found.append(f"{rank} {col.get_rank('default')} {col.get_collective_group_size('default')} {col.get_rank('other')}")
    for op in types.ReduceOp.SUM, types.ReduceOp.PRODUCT, types.ReduceOp.MIN, types.ReduceOp.MAX:
        t = tensor(2, 3)
        assert col.allreduce(t, op=op) is None
        keep(f"allreduce {op.name}", t)
    t = tensor(4)
    col.reduce(t, 1, op=types.ReduceOp.MAX)
    if rank == 1:
        keep("reduce", t)
    t = tensor(4)
    col.broadcast(t, src_rank=1, group_name="default")
    keep("broadcast", t)
    parts = [wrap(np.zeros((2, 2), "float32")) for _ in range(world_size)]
    col.allgather(parts, tensor(2, 2))
    for i, part in enumerate(parts):
        keep(f"allgather {i}", part)
    t = wrap(np.zeros(3, "float32"))
    col.reducescatter(t, [tensor(3) for _ in range(world_size)])
    keep("reducescatter", t)
    t = tensor(5)
    if rank == 0:
        col.send(t, 1)
    elif rank == 1:
        col.recv(t, 0)
        keep("recv", t)
    col.barrier()
    for what, call in [
        ("twice", lambda: col.init_collective_group(world_size, rank, backend="gloo", group_name="default")),
        ("no group", lambda: col.allreduce(t, group_name="nothing")),
        ("too few", lambda: col.allgather(parts[1:], tensor(2, 2))),
        ("no list", lambda: col.allgather(t, tensor(2, 2))),
        ("another shape", lambda: col.allgather(parts, tensor(2))),
        ("another type", lambda: col.allgather(parts, wrap(np.ones((2, 2))))),
        ("itself", lambda: col.send(t, rank)),
        ("out of range", lambda: col.broadcast(t, src_rank=world_size)),
    ]:
        try:
            call()
            found.append(f"{rank} {what}: not refused")
        except Exception as e:
            found.append(f"{rank} {what}: {type(e).__name__}")
    col.destroy_collective_group("default")
    found.append(f"{rank} {col.get_rank('default')} {col.is_group_initialized('default')}")
    return found


def own(col, types, wrap):
    """What differs from Ray: outputs that overlap are refused. The functions for several GPUs."""
    from collrun import rank, world_size

    def refused(call):
        try:
            call()
        except (ValueError, NotImplementedError) as e:
            return str(e)
        sys.exit("not refused")

    n, me = world_size(), rank()
    one, matrix, parts = wrap(np.ones(4, "float32")), wrap(np.zeros((4, n), "float32")), [wrap(np.zeros(4, "float32")) for _ in range(n)]
    col.init_collective_group(n, me, types.Backend("Gloo"), "own")
    for outputs in [parts[0]] * n, [matrix.reshape(-1)[i : i + 4] for i in range(n)], [matrix[:, 0]] * n, [matrix.reshape(-1)[::-1][i : i + 4] for i in range(n)] if wrap is np.array else [one] * n:
        if n > 1:
            assert " overlap; each needs memory of its own" in refused(lambda: col.allgather(outputs, one, "own"))
            assert "overlap" in refused(lambda: col.reducescatter(parts[1 - (me == 1)], parts, "own"))
    columns = [matrix[:, i] for i in range(n)]
    col.allgather(columns, one, "own")
    assert np.asarray(matrix).tolist() == [[1.0] * n] * 4
    col.reducescatter(parts[me], parts, "own")
    col.allreduce_multigpu([one], "own")
    col.allgather_multigpu([parts], [one], "own")
    col.reduce_multigpu([one], 0, 0, "own")
    col.broadcast_multigpu([one], 0, 0, "own")
    col.reducescatter_multigpu([one], [parts], "own", types.ReduceOp.MAX)
    assert [np.asarray(x).tolist() for x in (one, *parts)] == [[float(n)] * 4] * (n + 1)
    if me == 0 and n > 1:
        col.send_multigpu(one, 1, 0, "own", 2)
    elif me == 1:
        parts[0][...] = 0
        col.recv_multigpu(parts[0], 0, 0, "own", 2)
        assert np.asarray(parts[0]).tolist() == [n, n, 0, 0]
    assert "one rank for each GPU" in refused(lambda: col.allreduce_multigpu([one, one], "own"))
    assert "shared object" in refused(lambda: col.register_collective_backend("mine", object))
    assert types.Backend("torch_gloo") == types.Backend.GLOO == "GLOO" and types.AllReduceOptions().reduceOp is types.ReduceOp.SUM
    assert "Unrecognized backend: 'glooo'" in refused(lambda: types.Backend("glooo"))
    col.destroy_collective_group("own")


if __name__ == "__main__":
    import sys

    import collrun
    import collrun.ray as col
    from collrun.ray import types

    wrap = np.array
    if "torch" in sys.argv:
        import torch

        wrap = torch.from_numpy
    own(col, types, wrap)
    print("\n".join(results(col, types, collrun.rank(), collrun.world_size(), wrap)), flush=True)
