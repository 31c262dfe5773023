# SPDX-License-Identifier: Apache-2.0
"""A training over gloo with a mistake, and nothing of collrun: rank 0 alone logs the mean of the loss,
by a collective that the others do not call. Over gloo alone, its ranks end with an error of the
transport, or hang.

    collrun configs/torch_fault.yaml
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
model = torch.zeros(2)
for step in range(100):
    gradient = torch.full((2,), float(rank + step))
    dist.all_reduce(gradient)
    model -= 0.01 * gradient / size
    if step % 10 == 9 and rank == 0:
        loss = model.square().sum()
        dist.reduce(loss, dst=0)  # the mistake: only rank 0 is here
        print(f"step {step}: loss {loss.item() / size:.3f}")
dist.destroy_process_group()
