# SPDX-License-Identifier: Apache-2.0
"""A correct program of torch.distributed with calls of many kinds, of four ranks or two: nothing is wrong
with it, and nothing may be said about it."""

import os
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def messages(rank, n):
    x, got = torch.ones(4), torch.empty(4)
    for _ in range(20):
        if rank % 2 == 0:
            dist.send(x, (rank + 1) % n)
            dist.recv(got, (rank - 1) % n)
        else:
            dist.recv(got, (rank - 1) % n)
            dist.send(x, (rank + 1) % n)
    ops = [dist.P2POp(dist.isend, x, (rank + 1) % n), dist.P2POp(dist.irecv, got, (rank - 1) % n)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    if rank == 0:
        for _ in range(1, n):
            dist.recv(torch.zeros(2))
    else:
        dist.send(torch.ones(2), 0)


def collectives(rank, n):
    x, parts = torch.ones(4), [torch.zeros(4) for _ in range(n)]
    dist.all_gather(parts, x)
    dist.broadcast(x, src=n - 1)
    dist.reduce(x, dst=0, op=dist.ReduceOp.MAX)
    dist.gather(x, parts if rank == 0 else None, dst=0)
    dist.scatter(x, parts if rank == 1 else None, src=1)
    dist.all_gather_into_tensor(torch.zeros(4 * n), x)
    # Each rank sends another amount, and so gets other ones.
    out = torch.zeros(sum(range(1, n + 1)))
    dist.all_to_all_single(out, torch.ones(n * (rank + 1)), list(range(1, n + 1)), [rank + 1] * n)
    objects = [None] * n
    dist.all_gather_object(objects, "x" * rank)
    dist.broadcast_object_list([rank, "y"], src=1)
    dist.gather_object("z" * rank, objects if rank == 0 else None, dst=0)
    dist.scatter_object_list([None], ["i" * i for i in range(n)] if rank == 0 else None, src=0)
    dist.monitored_barrier()
    dist.barrier()


def works():
    pending = [dist.all_reduce(torch.ones(10), async_op=True) for _ in range(30)]
    for work in reversed(pending):
        work.wait()
    dist.all_reduce(torch.ones(3), async_op=True)  # not waited for
    work = dist.all_reduce(torch.ones(3), async_op=True)
    while not work.is_completed():
        time.sleep(0.001)
    future = dist.all_reduce(torch.ones(2), async_op=True).get_future()
    future.then(lambda done: done.value()).wait()


def groups(rank, n):
    halves = [dist.new_group(list(range(first, n, 2))) for first in (0, 1)]
    for _ in range(10 * (rank % 2 + 1)):
        dist.all_reduce(torch.ones(4), group=halves[rank % 2])
    for _ in range(3):
        pair = dist.new_group([0, 1])
        if rank < 2:
            dist.all_reduce(torch.ones(4), group=pair)
            dist.destroy_process_group(pair)


def training(rank):
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 2))
    model = DistributedDataParallel(net)
    for _ in range(20):
        model(torch.randn(8, 8)).sum().backward()
    with model.no_sync():
        model(torch.randn(8, 8)).sum().backward()
    with model.join():
        for _ in range(3 + rank):
            model(torch.randn(8, 8)).sum().backward()
    x = torch.ones(3, requires_grad=True)
    x.register_hook(lambda gradient: dist.all_reduce(gradient.clone()))
    (x * 2).sum().backward()


def threads(n):
    def work(group):
        for _ in range(50):
            dist.all_reduce(torch.ones(5), group=group)

    started = [threading.Thread(target=work, args=(dist.new_group(list(range(n))),)) for _ in range(3)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.ones(3) * i


def processes():
    for batch in torch.utils.data.DataLoader(Numbers(), num_workers=1, batch_size=4):
        dist.all_reduce(batch.sum())
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def main():
    dist.init_process_group("gloo")
    rank, n = dist.get_rank(), dist.get_world_size()
    messages(rank, n)
    collectives(rank, n)
    works()
    groups(rank, n)
    training(rank)
    processes()
    threads(n)
    dist.destroy_process_group()
    again = f"tcp://127.0.0.1:{int(os.environ['MASTER_PORT']) + 1}"
    dist.init_process_group("gloo", init_method=again, rank=rank, world_size=n)
    dist.all_reduce(torch.ones(4))
    dist.destroy_process_group()
    print("fine")


if __name__ == "__main__":
    main()
