# SPDX-License-Identifier: Apache-2.0
"""Arrays of cupy and tensors of torch on a real GPU, as users have them, on the group world: values, and the order of streams."""

import sys

import collrun

g = collrun.group()
n, me = g.size, g.rank
total = n * (n + 1) // 2


def same(what, x, want):
    if not (x == want).all():
        sys.exit(f"rank {me}: {what}: {x}, expected {want}")


def with_torch():
    import torch

    torch.cuda.set_device(0)
    for _ in range(5):  # what is queued on the current stream is done before, and what follows, after
        with torch.cuda.stream(torch.cuda.Stream()):
            x = torch.zeros(1 << 20, device="cuda")
            torch.cuda._sleep(20_000_000)
            x += me + 1
            g.allreduce(x)
            x += 1
            same("allreduce of a tensor", x, total + 1)
    request = g.allreduce(torch.full((1 << 20,), me + 1.0, device="cuda"), async_op=True)
    x = request.wait()
    same("async allreduce of a tensor", x, total)
    out = g.allgather(torch.full((3,), me, device="cuda", dtype=torch.bfloat16))
    same("allgather of bfloat16", out.reshape(n, 3)[:, 0].float().cpu(), torch.arange(n))
    return torch.__version__


def with_cupy():
    import cupy

    with cupy.cuda.Stream(non_blocking=True):
        x = cupy.full(1 << 16, me + 1, dtype="int64")
        g.allreduce(x)
        same("allreduce of an array", x, total)
    return cupy.__version__


for library in sys.argv[1:]:
    version = {"torch": with_torch, "cupy": with_cupy}[library]()
    print(f"{library} {version}: done")
