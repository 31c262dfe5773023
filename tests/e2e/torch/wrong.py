# SPDX-License-Identifier: Apache-2.0
"""Programs of torch.distributed with one mistake each, of three ranks: wrong.py NAME."""

import sys
import threading

import torch
import torch.distributed as dist


def kind(rank, x):
    if rank == 2:
        dist.all_reduce(x)
    else:
        dist.broadcast(x, src=0)


def count(rank, x):
    dist.all_reduce(torch.ones(5) if rank == 2 else x)


def dtype(rank, x):
    dist.all_reduce(x.to(torch.int32) if rank == 2 else x)


def op(rank, x):
    dist.all_reduce(x, op=dist.ReduceOp.MAX if rank == 2 else dist.ReduceOp.SUM)


def root(rank, x):
    dist.broadcast(x, src=1 if rank == 2 else 0)


def cycle(rank, x):
    if rank < 2:
        dist.recv(x, src=1 - rank)
        dist.send(x, dst=1 - rank)


def sends(rank, x):
    if rank < 2:
        dist.send(x, dst=1 - rank)
        dist.recv(x, src=1 - rank)


def order(rank, x):
    groups = [dist.new_group([0, 1, 2], group_desc=name) for name in ("dp", "tp")]
    for group in groups if rank else reversed(groups):
        dist.all_reduce(x, group=group)


def early(rank, x):
    if rank == 1:
        sys.exit(0)
    dist.barrier()


def raises(rank, x):
    if rank == 1:
        raise ValueError("the loss is not finite")
    dist.barrier()


def absent(rank, x):
    if rank == 1:
        threading.Event().wait()
    dist.barrier()


def ddp(rank, x):
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    for step in range(3):
        if rank == 1 and step == 2:
            threading.Event().wait()
        model(x).sum().backward()


dist.init_process_group("gloo")
ones = torch.ones(4)
for _ in range(3):
    dist.all_reduce(ones)
globals()[sys.argv[1]](dist.get_rank(), ones)
dist.barrier()
