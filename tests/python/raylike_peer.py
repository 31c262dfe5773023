# SPDX-License-Identifier: Apache-2.0
"""raylike.py under Ray: `python3 raylike_peer.py WORLD_SIZE` prints what its actors return."""

import os
import sys

import ray
import torch

import raylike

size = int(sys.argv[1])


@ray.remote(num_cpus=0)
class Worker:
    def run(self, rank):
        import ray.util.collective as col
        from ray.util.collective import types

        return raylike.results(col, types, rank, size, torch.from_numpy)


ray.init(
    num_cpus=1,
    include_dashboard=False,
    logging_level="ERROR",
    object_store_memory=80 << 20,
    runtime_env={"env_vars": {"PYTHONPATH": os.path.dirname(os.path.abspath(__file__))}},
)
workers = [Worker.remote() for _ in range(size)]
for lines in ray.get([w.run.remote(i) for i, w in enumerate(workers)]):
    print("\n".join(lines))
