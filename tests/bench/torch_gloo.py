# SPDX-License-Identifier: Apache-2.0
"""collrun.torch beside torch's gloo, in one run and in turn: an allreduce of 8 bytes, and a step of
DDP on a small MLP. Rank 0 prints medians in microseconds; the ranks of a job are its processes.
"""

import statistics
import time

import torch
import torch.distributed as dist
import torch.nn as nn

import collrun.torch

dist.init_process_group("collrun", init_method="collrun://")
torch.set_num_threads(1)
rank, size = dist.get_rank(), dist.get_world_size()
groups = {"collrun": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}


def allreduce(group):
    x = torch.ones(2)
    return lambda: dist.all_reduce(x, group=group)


def ddp_step(group):
    torch.manual_seed(1)
    net = nn.parallel.DistributedDataParallel(
        nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)),
        process_group=group,
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    x = torch.randn(16, 64)

    def step():
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()

    return step


def measure(what, make, count, rounds):
    bodies = {name: make(group) for name, group in groups.items()}
    times = {name: [] for name in groups}
    for _ in range(rounds):
        for name, body in bodies.items():
            for _ in range(count // 5):
                body()
            dist.barrier()
            begin = time.perf_counter()
            for _ in range(count):
                body()
            times[name].append((time.perf_counter() - begin) / count * 1e6)
    if rank == 0:
        ratios = [b / a for a, b in zip(times["collrun"], times["gloo"])]
        print(f"{what}, {size} ranks:", *(f"{n} {statistics.median(t):.1f} us," for n, t in times.items()),
              f"gloo/collrun {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})", flush=True)


measure("allreduce of 8 bytes", allreduce, 500, 9)
measure("DDP step", ddp_step, 20, 9)
dist.barrier()
dist.destroy_process_group()
