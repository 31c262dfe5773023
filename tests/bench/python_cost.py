# SPDX-License-Identifier: Apache-2.0
"""The allreduce of python_cost.c in Python, on `array` or `numpy`: microseconds per call, the median of 9 batches of CALLS."""
import array
import statistics
import sys
import time

import collrun

kind, calls = sys.argv[1], int(sys.argv[2])
if kind == "numpy":
    import numpy

    x = numpy.zeros(1)
else:
    x = array.array("d", [0])
g = collrun.group()


def batch():
    allreduce = g.allreduce
    start = time.perf_counter()
    for _ in range(calls):
        allreduce(x)
    return (time.perf_counter() - start) / calls * 1e6


us = [batch() for _ in range(9)]
if g.rank == 0:
    print(f"{statistics.median(us):.4f}")
