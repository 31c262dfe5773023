"""usage: pytorch_tests.py --list | TEST...     (in each rank of a job)

Runs PyTorch's own tests of c10d backends, which its package has
(torch.testing._internal.distributed.distributed_test), with the backend `collrun`, one after the
other, each with process groups of its own. PyTorch starts the ranks of these tests itself; here
they are those of the job. Prints "begin TEST", then "pass TEST" or "skip TEST: reason" on rank 0;
a rank whose test fails prints "fail TEST: error" and ends the job. TEMP_DIR is common to all ranks.
"""

import os
import sys
import unittest
from datetime import timedelta

os.environ.setdefault("BACKEND", "collrun")
os.environ.setdefault("TEMP_DIR", "/nowhere")
os.environ.setdefault("WORLD_SIZE", "1")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import collrun.torch  # noqa: E402
from torch.testing._internal import common_distributed, common_utils  # noqa: E402
from torch.testing._internal.distributed import distributed_test  # noqa: E402

# What PyTorch asks of a backend by name.
for feature in ("ddp", "subgroup"):
    common_distributed.DistTestCases.backend_feature[feature].add("collrun")
TIMEOUT = timedelta(seconds=30)
SKIPS = {skip.exit_code: skip.message for skip in common_distributed.TEST_SKIPS.values()}


class Tests(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    @property
    def init_method(self):
        return "collrun://"


def run(name, rank):
    """None, or why it was skipped."""
    test = Tests(name)
    test.rank = rank
    test.file_name = os.path.join(os.environ["TEMP_DIR"], name)
    dist.init_process_group(
        "collrun", init_method=test.init_method, timeout=TIMEOUT,
        rank=rank, world_size=int(test.world_size))
    # As PyTorch does: no rank leaves the groups while another one still makes them.
    test._barrier(timeout=60)
    try:
        common_utils.set_rng_seed(1)
        getattr(test, name)()
        test._barrier(timeout=60)
    except unittest.SkipTest as skip:
        return str(skip)
    except SystemExit as end:
        if end.code in SKIPS:
            return SKIPS[end.code]
        if end.code:
            raise RuntimeError(f"exit code {end.code}") from end
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    return None


def main():
    names = [name for name in dir(Tests) if name.startswith("test_")]
    if sys.argv[1:] == ["--list"]:
        print("\n".join(names))
        return
    rank = collrun.rank()
    for name in sys.argv[1:]:
        if rank == 0:
            print("begin", name, flush=True)
        try:
            why = run(name, rank)
        except BaseException as error:  # noqa: BLE001
            print("fail", name + ":", " ".join(f"{type(error).__name__}: {error}".split())[:400], flush=True)
            os._exit(1)
        if rank == 0:
            print(f"skip {name}: {why}" if why else f"pass {name}", flush=True)


main()
