# SPDX-License-Identifier: Apache-2.0
"""Every operation of collrun.torch beside torch's gloo: the same tensors on both, the same results.

The default group is collrun's, by collrun:// or env:// (the first argument). gloo's groups share
its store. Prints "rank R: N comparisons" at the end. With "cuda", or the arguments of
torch_device.use(), collrun's tensors are on that device, and gloo's in host memory.
"""

import datetime
import sys

import torch
import torch.distributed as dist

if len(sys.argv) > 2:  # before collrun.torch
    if sys.argv[2:] != ["cuda"]:
        import torch_device

        torch_device.use(*sys.argv[2:])
    torch.set_default_device(f"{sys.argv[2]}:0")

import collrun
import collrun.torch

count = 0


def same(what, mine, theirs):
    global count
    mine, theirs = list(mine), list(theirs)
    assert len(mine) == len(theirs), what
    for a, b in zip(mine, theirs):
        a, b = a.cpu(), b.cpu()
        assert a.dtype == b.dtype and a.shape == b.shape, (what, a, b)
        if a.is_floating_point() or a.is_complex():
            equal = torch.allclose(a, b, rtol=1e-2 if a.itemsize == 2 else 1e-6)
        else:
            equal = torch.equal(a, b)
        assert equal, f"{what}: {a} is not {b}"
    count += 1


def finish(work):
    # all_reduce_coalesced gives a future.
    (work.get_future() if hasattr(work, "get_future") else work).wait()


def both(what, body):
    """body(group) on both backends, synchronously, asynchronously and by the future."""
    try:
        with torch.device("cpu"):
            theirs = body(gloo, lambda work: work, False)
    except RuntimeError as e:  # gloo of torch 2.6 has no reduce_scatter
        if "Gloo does not support" not in str(e):
            raise
        print(f"{what} is not compared: {e}", flush=True)
        return
    same(what, body(mine, lambda work: work, False), theirs)
    same(f"{what}, async", body(mine, lambda work: work.wait(), True), theirs)
    same(f"{what}, future", body(mine, finish, True), theirs)


def values(shape, dtype, salt=0):
    x = torch.arange(1, 1 + int(torch.tensor(shape).prod()), dtype=torch.float64) + rank + salt
    if dtype.is_complex:
        return torch.complex(x, -x).to(dtype).reshape(shape)
    return (x % 2 if dtype == torch.bool else x % 7 + 1).to(dtype).reshape(shape)


def reductions():
    ops = dist.ReduceOp
    for dtype in (torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16,
                  torch.float32, torch.float64):
        for op in (ops.SUM, ops.PRODUCT, ops.MIN, ops.MAX, ops.BAND, ops.BOR, ops.BXOR):
            if dtype.is_floating_point and op in (ops.BAND, ops.BOR, ops.BXOR):
                continue

            def allreduce(group, end, later, dtype=dtype, op=op):
                x = values((3, 5), dtype)
                end(dist.all_reduce(x, op, group=group, async_op=later))
                return [x]

            both(f"all_reduce {dtype} {op}", allreduce)

    def strided(group, end, later):
        x = values((4, 6), torch.float32).t()
        end(dist.all_reduce(x, group=group, async_op=later))
        return [x]

    both("all_reduce of a transposed tensor", strided)

    def strided_inference(group, end, later):
        with torch.inference_mode():
            x = values((4, 6), torch.float32).t()
        end(dist.all_reduce(x, group=group, async_op=later))
        return [x]

    both("all_reduce of a transposed tensor of inference mode", strided_inference)

    def complex_sum(group, end, later):
        x = values((5,), torch.complex64)
        end(dist.all_reduce(x, group=group, async_op=later))
        return [x]

    both("all_reduce of complex numbers", complex_sum)

    def to_root(group, end, later):
        x = values((7,), torch.float32)
        end(dist.reduce(x, size - 1, group=group, async_op=later))
        return [x] if rank == size - 1 else []

    both("reduce", to_root)

    def coalesced(group, end, later):
        xs = [values((3,), torch.float32), values((2, 2), torch.float32, 3)]
        end(dist.all_reduce_coalesced(xs, group=group, async_op=later))
        return xs

    both("all_reduce_coalesced", coalesced)

    def scatter_list(group, end, later):
        out = torch.zeros(4)
        end(dist.reduce_scatter(out, [values((4,), torch.float32, i) for i in range(size)],
                                group=group, async_op=later))
        return [out]

    both("reduce_scatter", scatter_list)

    def scatter_tensor(group, end, later):
        out = torch.zeros(2, 3)
        end(dist.reduce_scatter_tensor(out, values((2 * size, 3), torch.float32), group=group,
                                       async_op=later))
        return [out]

    both("reduce_scatter_tensor", scatter_tensor)
    average = torch.tensor([float(rank)])
    dist.all_reduce(average, ops.AVG, group=mine)
    assert average.item() == (size - 1) / 2
    scaled = torch.tensor([1.0 + rank])
    dist.all_reduce(scaled, dist._make_nccl_premul_sum(2.0), group=mine)
    assert scaled.item() == size * (size + 1)


def movements():
    for dtype in (torch.float32, torch.int16, torch.bool, torch.complex64, torch.float8_e4m3fn):
        x = values((2, 3), torch.float32).to(dtype)

        def broadcast(group, x=x):
            y = x.clone()
            dist.broadcast(y, size - 1, group=group)
            return [y.to(torch.complex64)]

        expected = (values((2, 3), torch.float32) * 0 + last((2, 3))).to(dtype)
        same(f"broadcast {dtype}", broadcast(mine), [expected.to(torch.complex64)])

    def gather_all(group, end, later):
        outs = [torch.zeros(2, 3) for _ in range(size)]
        end(dist.all_gather(outs, values((2, 3), torch.float32), group=group, async_op=later))
        return outs

    both("all_gather", gather_all)

    def gather_inference(group, end, later):
        with torch.inference_mode():
            outs = [torch.zeros(2, 3) for _ in range(size)]
            work = dist.all_gather(outs, values((2, 3), torch.float32), group=group, async_op=later)
        end(work)
        return outs

    both("all_gather in inference mode", gather_inference)

    def gather_tensor(group, end, later):
        out = torch.zeros(2 * size, 3)
        end(dist.all_gather_into_tensor(out, values((2, 3), torch.float32), group=group,
                                        async_op=later))
        return [out]

    both("all_gather_into_tensor", gather_tensor)

    def gather(group, end, later):
        outs = [torch.zeros(3) for _ in range(size)] if rank == 0 else None
        end(dist.gather(values((3,), torch.float32), outs, 0, group=group, async_op=later))
        return outs or []

    both("gather", gather)

    def scatter(group, end, later):
        out = torch.zeros(3)
        ins = [values((3,), torch.float32, i) for i in range(size)] if rank == 0 else None
        end(dist.scatter(out, ins, 0, group=group, async_op=later))
        return [out]

    both("scatter", scatter)

    def alltoall_single(group, end, later):
        out = torch.zeros(2 * size, 2)
        end(dist.all_to_all_single(out, values((2 * size, 2), torch.float32), group=group,
                                   async_op=later))
        return [out]

    both("all_to_all_single", alltoall_single)

    def alltoall_split(group, end, later):
        sends = [1 + (rank + i) % 2 for i in range(size)]
        out = torch.zeros(sum(sends), 2)
        end(dist.all_to_all_single(out, values((sum(sends), 2), torch.float32), sends, sends,
                                   group=group, async_op=later))
        return [out]

    both("all_to_all_single with splits", alltoall_split)

    def alltoall_split_here(group, end, later):
        sends = [2] * size if rank == 0 else None
        out = torch.zeros(2 * size, 2)
        end(dist.all_to_all_single(out, values((2 * size, 2), torch.float32), sends, sends,
                                   group=group, async_op=later))
        return [out]

    both("all_to_all_single with splits on one rank", alltoall_split_here)
    replaced = torch.arange(size, dtype=torch.float32) + 10 * rank
    dist.all_to_all_single(replaced, replaced, group=mine)
    same("all_to_all_single in place", [replaced], [10.0 * torch.arange(size) + rank])
    outs = [torch.zeros(1 + i) for i in range(size)]
    dist.all_to_all(outs, [torch.full((1 + rank,), 10.0 * rank + i) for i in range(size)],
                    group=mine)
    same("all_to_all", outs, [torch.full((1 + i,), 10.0 * i + rank) for i in range(size)])
    uneven = [torch.zeros(1 + i) for i in range(size)]
    dist.all_gather(uneven, torch.full((1 + rank,), float(rank)), group=mine)
    same("all_gather of different sizes", uneven,
         [torch.full((1 + i,), float(i)) for i in range(size)])


def last(shape):
    x = torch.arange(1, 1 + int(torch.tensor(shape).prod()), dtype=torch.float64) + size - 1
    return (x % 7 + 1).reshape(shape)


def messages():
    for group, where in (gloo, torch.device("cpu")), (mine, torch.zeros(0).device):
        messages_of(group, where)
    y = torch.zeros(2)
    for work in dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, torch.full((2,), float(rank)), (rank + 1) % size),
             dist.P2POp(dist.irecv, y, (rank - 1) % size)]):
        work.wait()
    same("batch_isend_irecv", [y], [torch.full((2,), float((rank - 1) % size))])


def messages_of(group, where):
    with where:
        y = torch.zeros(4)
        works = [dist.isend(torch.full((4,), float(rank)), (rank + 1) % size, group=group, tag=5),
                 dist.irecv(y, (rank - 1) % size, group=group, tag=5)]
        for work in works:
            work.wait()
        same("isend and irecv", [y], [torch.full((4,), float((rank - 1) % size))])
        if rank == 0:
            seen = sorted(dist.recv(y, group=group) for _ in range(size - 1))
            assert seen == list(range(1, size)), seen
        else:
            dist.send(torch.ones(4), 0, group=group)
        dist.barrier(group=group)


def requests():
    x = torch.ones(1 << 16)
    works = [dist.all_reduce(x, async_op=True) for _ in range(3)]
    calls = []
    future = works[2].get_future().then(lambda f: calls.append(f.value()[0][0].item()))
    future.wait()
    assert calls == [float(size) ** 3], calls
    for work in works:  # on a device, the host has not waited yet
        work.wait(datetime.timedelta(seconds=30))
    assert all(work.is_completed() and work.is_success() for work in works)
    for _ in range(10):
        dist.all_reduce(x.fill_(1.0), async_op=True)  # the Work is dropped
    dist.barrier()
    if rank == 0:
        work = dist.irecv(torch.zeros(1), 1, tag=9)
        try:
            work.wait(datetime.timedelta(milliseconds=50))
            raise AssertionError("no message was sent")
        except dist.DistBackendError as error:
            assert "50 ms" in str(error), error
        dist.send(torch.ones(1), 1, tag=8)
        work.wait()
    elif rank == 1:
        dist.recv(torch.zeros(1), 0, tag=8)
        dist.send(torch.ones(1), 0, tag=9)
    assert dist.get_backend() == "collrun" and dist.distributed_c10d._get_default_group().name()


def groups():
    some = dist.new_group([0, size - 1], backend="collrun")
    if rank in (0, size - 1):
        x = torch.ones(2)
        dist.all_reduce(x, group=some)
        assert x[0] == 2 and dist.get_world_size(some) == 2
    again = dist.new_group(backend="collrun")
    x = torch.ones(1)
    dist.all_reduce(x, group=again)
    assert x[0] == size
    try:
        dist.all_reduce(torch.zeros(2).to(torch.float8_e4m3fn))
        raise AssertionError("float8 was reduced")
    except TypeError as error:
        assert "no reduction of Float8" in str(error), error
    if hasattr(mine._get_backend(torch.device("cpu")), "options"):  # since torch 2.9
        split()
    dist.destroy_process_group(some)


def split():
    half = dist.split_group(split_ranks=[list(range(size // 2)), list(range(size // 2, size))])
    x = torch.ones(1)
    dist.all_reduce(x, group=half)
    assert x[0] == dist.get_world_size(half), (x, dist.get_world_size(half))


def store():
    keys = dist.PrefixStore("test", dist.distributed_c10d._get_default_store())
    keys.set(f"r{rank}", f"v{rank}")
    keys.wait([f"r{i}" for i in range(size)])
    assert keys.get(f"r{size - 1}") == f"v{size - 1}".encode()
    keys.add("n", rank + 1)
    dist.barrier()
    assert keys.add("n", 0) == size * (size + 1) // 2
    if rank == size - 1:
        assert keys.compare_set("c", "", "x") == b"x" and keys.compare_set("c", "y", "z") == b"x"
        assert keys.check(["c"]) and not keys.check(["none"])
        assert keys.delete_key("c") and not keys.delete_key("c")
        keys.multi_set(["a", "b"], ["1" * 100000, "2"])
        assert keys.multi_get(["a", "b"]) == [b"1" * 100000, b"2"]
        try:
            keys.wait(["none"], datetime.timedelta(milliseconds=30))
            raise AssertionError("a key that does not exist was found")
        except dist.DistStoreError:
            pass
    assert dist.distributed_c10d._get_default_store().num_keys() > 0
    dist.barrier()


dist.init_process_group("collrun", init_method=sys.argv[1])
rank, size = dist.get_rank(), dist.get_world_size()
assert (rank, size) == (collrun.rank(), collrun.world_size())
mine, gloo = dist.group.WORLD, dist.new_group(backend="gloo")
for part in (reductions, movements, messages, requests, groups, store):
    part()
dist.barrier()
dist.destroy_process_group()
print(f"rank {rank}: {count} comparisons", flush=True)
