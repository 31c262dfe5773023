# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training on the functions of ray.util.collective: only the import differs from a program
for Ray. Where Ray has an actor, collrun has a rank.

    collrun configs/ray.yaml

Every worker has a share of the samples of y = X w, and the workers find w together. Needs numpy.
"""

import collrun
import collrun.ray as collective  # was: import ray.util.collective as collective
import numpy as np

GROUP, SAMPLES, FEATURES, STEPS, RATE = "train", 240, 16, 60, 0.5


class Worker:  # was: @ray.remote
    def __init__(self, world_size, rank):
        collective.init_collective_group(world_size, rank, backend="gloo", group_name=GROUP)
        random = np.random.default_rng(seed=1)  # the same samples in every worker, which takes its share
        samples = random.standard_normal((SAMPLES, FEATURES))
        self.truth = random.standard_normal(FEATURES)
        self.x = samples[rank::world_size]
        self.y = self.x @ self.truth
        self.w = np.zeros(FEATURES)

    def step(self):
        """One step of gradient descent on all samples; returns their mean squared error."""
        error = self.x @ self.w - self.y
        sums = np.append(self.x.T @ error, error @ error) / SAMPLES  # the gradient, and the loss
        collective.allreduce(sums, group_name=GROUP)  # in place, op=ReduceOp.SUM
        self.w -= RATE * sums[:-1]
        return sums[-1]


worker = Worker(collrun.world_size(), collrun.rank())
losses = [worker.step() for _ in range(STEPS)]
rank, size = collective.get_rank(GROUP), collective.get_collective_group_size(GROUP)
if not np.allclose(worker.w, worker.truth, atol=1e-3):
    raise SystemExit(f"rank {rank}: not converged: loss {losses[-1]:.3e}")
if rank == 0:
    print(f"{size} workers: loss {losses[0]:.6f} at first, {losses[9]:.6f} after 10 steps")
    print("converged: the parameters are right to 3 decimals")
collective.destroy_collective_group(GROUP)
