# SPDX-License-Identifier: Apache-2.0
"""A script for torchrun, as it is: torch.distributed over gloo, and nothing of collrun. The ranks fit a
line to points that they share out, and average their gradients.

    torchrun --nproc-per-node 4 torch_env.py
    collrun configs/torch_env.yaml
"""

import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")  # env://: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
rank, size = dist.get_rank(), dist.get_world_size()
assert 0 <= int(os.environ["LOCAL_RANK"]) < int(os.environ["LOCAL_WORLD_SIZE"])

x = torch.linspace(-1, 1, 1000, dtype=torch.float64)[rank::size]
y = 3 * x + 1
model = torch.zeros(2, dtype=torch.float64, requires_grad=True)
for _ in range(200):
    error = model[0] * x + model[1] - y
    total = (error * error).sum() / 2000
    total.backward()
    dist.all_reduce(model.grad)
    with torch.no_grad():
        model -= model.grad
        model.grad.zero_()

seen = [None] * size
dist.all_gather_object(seen, [round(value, 3) for value in model.tolist()])
if any(values != seen[0] for values in seen):
    raise SystemExit(f"the ranks disagree: {seen}")
if rank == 0:
    print(f"{size} ranks: y = {seen[0][0]:.3f} x + {seen[0][1]:.3f}")
dist.destroy_process_group()
