# SPDX-License-Identifier: Apache-2.0
"""A program of mpi4py, for any MPI: collectives, communicators, messages and objects, each checked.

Prints "rank R of N: ok, L" at the end, with the name of the library. The argument `raise`, `kill`
or `abort` makes rank 1 end in that way, in the middle.
"""

import os
import signal
import sys

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
fault = sys.argv[1] if len(sys.argv) > 1 else None

for count in (1, 1000, 100000):
    values, sums = np.full(count, float(rank)), np.empty(count)
    world.Allreduce(values, sums)
    assert (sums == size * (size - 1) / 2).all()
    every = np.empty((size, count))
    world.Allgather(values, every)
    assert (every == np.arange(size)[:, None]).all()
if fault and rank == 1:
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "abort":
        world.Abort(7)
    raise LookupError("no such sample")
half = world.Split(rank % 2, rank)
assert half.allreduce(1) == len(range(rank % 2, size, 2))
assert world.allgather({"rank": rank}) == [{"rank": r} for r in range(size)]
if size > 1:
    sent = world.isend(("hello", rank), (rank + 1) % size)
    assert world.recv(source=(rank - 1) % size) == ("hello", (rank - 1) % size)
    sent.wait()
    block = np.full(500000, rank)
    got = np.empty_like(block)
    world.Sendrecv(block, (rank + 1) % size, recvbuf=got, source=(rank - 1) % size)
    assert (got == (rank - 1) % size).all()
for _ in range(100):
    world.Barrier()
print(f"rank {rank} of {size}: ok, {MPI.Get_library_version().split()[0].strip(':')}", flush=True)
