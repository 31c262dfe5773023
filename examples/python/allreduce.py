# SPDX-License-Identifier: Apache-2.0
"""Each rank adds its vector to those of the others, in blocks that are in flight together, and checks
the sum. With numpy, and without: any object with the buffer protocol is an array.

    collrun configs/python.yaml
"""

import array
import os
import time

import collrun

blocks, elements = int(os.environ.get("BLOCKS", 4)), int(os.environ.get("ELEMENTS", 65536))
g = collrun.group()

try:
    import numpy

    x = [numpy.full(elements, g.rank + 1, "float32") for _ in range(blocks)]
except ImportError:
    x = [array.array("f", [g.rank + 1]) * elements for _ in range(blocks)]

begin = time.perf_counter()
requests = [g.allreduce(block, async_op=True) for block in x]
for request in requests:
    request.wait()
seconds = time.perf_counter() - begin

expected = g.size * (g.size + 1) / 2
for block in x:
    if min(block) != expected or max(block) != expected:
        raise SystemExit(f"rank {g.rank}: the sum is {block[0]}, not {expected}")
collrun.metric("seconds", seconds)
if g.rank == 0:
    print(f"{g.size} ranks on {g.backend}: the sum of {blocks} x {elements} float32 is {expected:g} everywhere")
