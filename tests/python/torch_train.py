# SPDX-License-Identifier: Apache-2.0
"""Trainings whose losses do not depend on the backend: DDP, FSDP2, tensor and pipeline parallelism
on a DeviceMesh. The argument is the backend; rank 0 prints the losses.
"""

import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

if sys.argv[1] == "collrun":
    import collrun.torch

    dist.init_process_group("collrun", init_method="collrun://")
else:
    dist.init_process_group(sys.argv[1])
rank, size = dist.get_rank(), dist.get_world_size()
torch.set_default_dtype(torch.float64)


def model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))


def data(part):
    generator = torch.Generator().manual_seed(100 + part)
    x = torch.randn(8, 16, generator=generator)
    return x, x[:, :4] * 2 - 1


def train(what, net, part, steps=4):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    x, y = data(part)
    losses = []
    for _ in range(steps):
        loss = nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(total.item() / size)
    report(what, losses)


def report(what, losses):
    assert losses[-1] < losses[0], (what, losses)
    if rank == 0:
        print(what, " ".join(f"{loss:.9f}" for loss in losses), flush=True)


train("DDP", DistributedDataParallel(model(), bucket_cap_mb=0.001), rank)

net = model()
for layer in net:
    if isinstance(layer, nn.Linear):
        fully_shard(layer, mesh=init_device_mesh("cpu", (size,)))
train("FSDP2", fully_shard(net, mesh=init_device_mesh("cpu", (size,))), rank)

mesh = init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("dp", "tp"))
net = parallelize_module(model(), mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
train("tensor parallel", fully_shard(net, mesh=mesh["dp"]), mesh.get_local_rank("dp"))

layers = list(model())
per_stage = [layers[:2], layers[2:]]
if rank < 2:
    pair = dist.new_group([0, 1], use_local_synchronization=True, backend=sys.argv[1])
    stage = nn.Sequential(*per_stage[rank])
    schedule = ScheduleGPipe(
        PipelineStage(stage, rank, 2, torch.device("cpu"), group=pair),
        n_microbatches=4,
        loss_fn=nn.functional.mse_loss,
    )
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.05)
    x, y = data(0)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        each = []
        if rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=y, losses=each)
        optimizer.step()
        loss = torch.tensor(float(sum(e.item() for e in each)))
        dist.broadcast(loss, 1, group=pair)
        losses.append(loss.item())
    report("pipeline", losses)
dist.barrier()
dist.destroy_process_group()
