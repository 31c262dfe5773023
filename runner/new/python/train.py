"""Fits a line to points: each rank has its own points, and all ranks add up their gradients."""

import argparse
import array
import random

import collrun

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100)
steps = parser.parse_args().steps

g = collrun.group()
random.seed(g.rank)
points = [(x, 3 * x + 1) for x in (random.uniform(-1, 1) for _ in range(1000))]

slope, offset = 0.0, 0.0
for step in range(steps):
    sums = array.array("d", [0, 0, 0])  # the gradient, and the loss
    for x, y in points:
        error = slope * x + offset - y
        sums[0] += error * x
        sums[1] += error
        sums[2] += error * error
    g.allreduce(sums)  # in place; numpy arrays and torch tensors work as well
    n = g.size * len(points)
    slope -= sums[0] / n
    offset -= sums[1] / n
    collrun.progress(step + 1, steps)

collrun.metric("loss", sums[2] / n)
if g.rank == 0:
    print(f"{g.size} ranks: y = {slope:.3f} x + {offset:.3f}, loss {sums[2] / n:.6f}")
