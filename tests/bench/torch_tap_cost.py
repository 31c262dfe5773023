# SPDX-License-Identifier: Apache-2.0
"""What it adds to a call of torch.distributed that it is recorded, in us of the calling thread: rounds of
calls with and without the wrapped methods, in turn, of one rank over gloo."""

import ctypes
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup, Work

dist.init_process_group("gloo")
wrapped = {(owner, name): getattr(owner, name) for owner, name in ((ProcessGroup, "allreduce"), (ProcessGroup, "broadcast"),
                                                                   (ProcessGroup, "barrier"), (Work, "wait"))}
if not all(hasattr(method, "__wrapped__") for method in wrapped.values()):
    raise SystemExit("the calls are not recorded: observe is off, or torch is not known")
# A method of C++, as the class had it.
method_of = ctypes.pythonapi.PyInstanceMethod_New
method_of.restype, method_of.argtypes = ctypes.py_object, [ctypes.py_object]
plain = {key: method_of(method.__wrapped__) for key, method in wrapped.items()}
x = torch.ones(2)
calls = {
    "all_reduce of 8 B": lambda: dist.all_reduce(x),
    "broadcast of 8 B": lambda: dist.broadcast(x, src=0),
    "barrier": lambda: dist.barrier(),
}


def measure(call, recorded, n=200):
    for (owner, name), method in (wrapped if recorded else plain).items():
        setattr(owner, name, method)
    begin = time.thread_time()
    for _ in range(n):
        call()
    return (time.thread_time() - begin) / n * 1e6


print(f"# torch {torch.__version__}, gloo, one rank")
print(f"{'call':<20} {'off, us':>8} {'on, us':>8} {'cost':>6}  quartiles")
for name, call in calls.items():
    pairs = [(measure(call, False), measure(call, True)) for _ in range(int(sys.argv[1]))]
    low, middle, high = statistics.quantiles([on - off for off, on in pairs], n=4)
    off, on = (statistics.median(values) for values in zip(*pairs))
    print(f"{name:<20} {off:8.2f} {on:8.2f} {middle:6.2f}  [{low:.2f}, {high:.2f}]")
dist.destroy_process_group()
