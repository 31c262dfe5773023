# SPDX-License-Identifier: Apache-2.0
"""The order of collrun.torch's operations on a device of torch: streams, lifetimes, futures, DDP.

The arguments are "nccl" or "copies" (whether the host may go on while an operation waits for other
ranks) and those of torch_device.use().
"""

import ctypes
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn

import torch_device

free_host = sys.argv[1] == "nccl"
torch_device.use(*sys.argv[2:])
name = sys.argv[2]

import collrun  # noqa: E402
import collrun.torch  # noqa: E402

dist.init_process_group("collrun", init_method="collrun://")
rank, size = dist.get_rank(), dist.get_world_size()
store = dist.distributed_c10d._get_default_store()
here = torch.device(name, 0)
N = 20000


def filled(value, shape=(N,)):
    return torch.full(shape, float(value)).to(here)


def is_all(what, tensor, value):
    host = tensor.cpu()
    assert torch.equal(host, torch.full(host.shape, float(value))), (what, value, host)


def total(of=lambda r: r):
    return sum(of(r) for r in range(size))


class Stream:
    """Another current stream."""

    def __enter__(self):
        self.before = torch.accelerator.current_stream()
        self.stream = torch.Stream(device=here)
        torch.accelerator.set_stream(self.stream)
        return self.stream

    def __exit__(self, *unused):
        torch.accelerator.set_stream(self.before)


def current_streams():
    for again in range(10):
        with Stream() as other:
            x = filled(rank + again)
            dist.all_reduce(x)
            is_all("what a stream wrote is reduced, and that stream waits", x, total(lambda r: r + again))
            y = filled(rank)
            work = dist.all_reduce(y, async_op=True)
        work.wait()  # the default stream
        is_all("the stream of wait() waits", y, total())
        assert other != torch.accelerator.current_stream()


def host_goes_on():
    """Rank 0 returns from wait() before another rank calls."""
    for what in "wait", "future", "sync":
        x = filled(rank + 1)
        if rank == 0:
            if what == "sync":
                dist.all_reduce(x)
            else:
                work = dist.all_reduce(x, async_op=True)
                if what == "wait":
                    work.wait()
                else:
                    chained = work.get_future().then(lambda f: f.value()[0])
                assert not work.is_completed()
            store.set(f"{what} returned", "yes")
        else:
            store.wait([f"{what} returned"], timedelta(seconds=30))
            dist.all_reduce(x)
        is_all(f"{what} without the host", chained.wait() if (rank, what) == (0, "future") else x, total(lambda r: r + 1))


def lifetimes():
    """Nobody but the operation holds its tensors, whose memory would be used again at once."""
    for again in range(20):
        outs = [filled(-1) for _ in range(size)]
        work = dist.all_gather(outs, filled(rank + again), async_op=True)
        filled(999)
        work.wait()
        for r in range(size):
            is_all("all_gather", outs[r], r + again)
        got = filled(-1)
        receive = dist.irecv(got, (rank - 1) % size, tag=again)
        dist.isend(filled(rank + again), (rank + 1) % size, tag=again)
        filled(999)
        receive.wait()
        is_all("irecv", got, (rank - 1) % size + again)
        # Tensors that are not contiguous are copied, in the stream that waits.
        strided = filled(rank, (100, 60)).t()
        work = dist.all_reduce(strided, async_op=True)
        with Stream():
            work.wait()
            del work
            filled(999, (100, 60))
            is_all("a transposed tensor", strided, total())


def completions():
    x = filled(rank)
    work = dist.all_reduce(x, async_op=True)
    assert work.wait(timedelta(seconds=30)) and work.is_completed() and work.is_success()
    future = dist.all_reduce(filled(1), async_op=True).get_future()
    is_all("a future", future.wait()[0], size)
    with Stream():
        is_all("a future in another stream", dist.all_reduce(filled(1), async_op=True).get_future().wait()[0], size)
    chained = dist.all_reduce(filled(1), async_op=True).get_future().then(lambda f: f.value()[0] + 1)
    is_all("then()", chained.wait(), size + 1)
    work = dist.all_reduce(filled(1), async_op=True)
    work.get_future()
    work.wait()
    if rank == 0:
        senders = []
        for _ in range(size - 1):
            senders.append(dist.recv(x))
            is_all("recv from any rank", x, senders[-1])
        assert sorted(senders) == list(range(1, size)), senders
    else:
        dist.send(filled(rank), 0)


def host_memory():
    x = torch.ones(3)
    dist.all_reduce(x)
    is_all("memory of the host", x, size)
    everybody = [None] * size
    dist.all_gather_object(everybody, {"rank": rank})
    assert everybody == [{"rank": r} for r in range(size)], everybody
    again = dist.new_group()
    x = torch.ones(3)
    dist.all_reduce(x, group=again)
    is_all("memory of the host, in a group made at run time", x, size)
    group = dist.distributed_c10d._get_default_group()._get_backend(here)
    print(f"rank {rank}: {group.group_backend}", flush=True)


def capture():
    """While a graph is captured an operation on that stream is refused, and the capture remains valid."""
    library, graph = ctypes.CDLL(sys.argv[4]), ctypes.c_void_p()
    with Stream() as other:
        x = filled(rank)
        handle = ctypes.c_void_p(other.native_handle)
        assert library.cudaStreamBeginCapture(handle, 0) == 0
        try:
            dist.all_reduce(x)
            raise SystemExit("an operation on a stream that captures is accepted")
        except dist.DistBackendError as e:
            assert "the stream captures a CUDA graph" in str(e), e
        assert library.cudaStreamEndCapture(handle, ctypes.byref(graph)) == 0
        dist.all_reduce(x)
        is_all("after a capture", x, total())


def ddp():
    def run(device, group):
        torch.manual_seed(1)
        net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)).to(device)
        net = nn.parallel.DistributedDataParallel(net, process_group=group, bucket_cap_mb=0.0005)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=False)
        x = torch.randn(6, 8, generator=torch.Generator().manual_seed(7 + rank))
        losses = []
        for _ in range(4):
            loss = nn.functional.mse_loss(net(x.to(device)), (x[:, :2] * 2).to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach().cpu().item())
        return losses

    mine, theirs = run(here, None), run("cpu", dist.new_group(backend="gloo"))
    assert all(abs(a - b) < 1e-5 for a, b in zip(mine, theirs)) and mine[-1] < mine[0], (mine, theirs)


current_streams()
if free_host:
    host_goes_on()
lifetimes()
completions()
if sys.argv[3] == "cuda":
    capture()
host_memory()
ddp()
dist.barrier()
dist.destroy_process_group()
print(f"rank {rank}: done", flush=True)
