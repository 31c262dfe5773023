# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel of PyTorch: a small network learns to recognize digits. The rank, the world size and the
address of the rendezvous are in the environment, under the names of torchrun, so that the script runs under either:

    collrun configs/ddp.yaml
    torchrun --nproc-per-node 4 examples/python/ddp.py

The images are scikit-learn's digits; without it, ten random images with noise. Needs torch.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 100


def init():
    """collrun's backend where it is built for this torch (`make torch`), else gloo."""
    if "COLLRUN_RANK" in os.environ and os.environ.get("BACKEND") != "gloo":
        try:
            import collrun.torch  # noqa: F401: registers the backend

            return dist.init_process_group("collrun", init_method="collrun://")
        except ImportError:
            pass
    dist.init_process_group("gloo", init_method="env://")


def images():
    """(n, 64) pixels in 0 .. 1, and the n digits that they show."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        labels = torch.arange(1000) % 10
        return torch.rand(10, 64)[labels] + 0.3 * torch.randn(1000, 64), labels
    pixels, labels = load_digits(return_X_y=True)
    return torch.tensor(pixels, dtype=torch.float32) / 16, torch.tensor(labels)


def total(value):
    """The sum of a tensor of one element over the ranks, as a number."""
    value = value.detach().double()
    dist.all_reduce(value)
    return value.item()


torch.manual_seed(0)  # the same images and the same first parameters on every rank
torch.set_num_threads(1)
init()
rank, size = dist.get_rank(), dist.get_world_size()

x, labels = images()
model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
n = len(x) // size * size  # equal shares: DDP averages the gradients of the ranks
mine, answers = x[rank:n:size], labels[rank:n:size]

for step in range(1, STEPS + 1):
    outputs = model(mine)
    loss = nn.functional.cross_entropy(outputs, answers)
    optimizer.zero_grad()
    loss.backward()  # DDP sums the gradients here, while it computes them
    optimizer.step()
    if step % 20 == 0:
        mean, right = total(loss) / size, total((outputs.argmax(1) == answers).sum()) / n
        if rank == 0:
            print(f"step {step:3}: loss {mean:.4f}, accuracy {right:.3f}", flush=True)

backend = dist.get_backend()
dist.destroy_process_group()
if right < 0.95:
    raise SystemExit(f"rank {rank}: not converged: accuracy {right:.3f}")
if rank == 0:
    print(f"{size} processes on {backend}, {n} images")
    print(f"converged: loss {mean:.4f}, accuracy {right:.3f}")
