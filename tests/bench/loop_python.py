#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The measuring loop's allreduce, by Ray's collective library and by torch.distributed, both on Gloo.

usage: loop_python.py ray|torch LOOP.so PLAN LIBRARY RANKS

The loop is loop.c, as a shared library, which calls back; a callback takes 1 to 2 us. Ray has one actor per rank, torch one process. Both
reduce in place. The loop compares the first call of a row, so that call starts from the input.
"""
import ctypes
import os
import subprocess
import sys
import tempfile

from ctypes import CFUNCTYPE, POINTER, Structure, c_bool, c_char_p, c_double, c_int, c_size_t, c_uint, c_void_p

ALLREDUCE = 1  # enum loop_op


class Call(Structure):  # struct loop_call
    _fields_ = [("op", c_int), ("started", c_bool), ("peer", c_int), ("send", c_void_p), ("recv", c_void_p), ("count", c_size_t)]


class Port(Structure):  # struct loop_port
    pass


Supports = CFUNCTYPE(c_bool, c_int, c_bool)
Run = CFUNCTYPE(None, POINTER(Port), POINTER(Call))
Alloc = CFUNCTYPE(c_void_p, POINTER(Port), c_size_t)
Slowest = CFUNCTYPE(c_double, POINTER(Port), c_double)
Port._fields_ = [("rank", c_int), ("nranks", c_int), ("state", c_void_p), ("supports", Supports), ("run", Run), ("alloc", Alloc),
                 ("slowest", Slowest)]


def measure(library, plan, index, rank, nranks, total, most):
    """total(tensor), most(tensor): allreduce in place, by sum and by maximum."""
    import torch
    buffers, views = {}, {}

    def new_buffer(_, size):
        tensor = torch.empty(size // 4)
        buffers[tensor.data_ptr()] = tensor
        return tensor.data_ptr()

    def run(_, call):
        c = call.contents
        view = views.get(c.count)
        if view is None:
            view = views[c.count] = buffers[c.recv][:c.count]
            view.copy_(buffers[c.send][:c.count])
        total(view)

    def slowest(_, us):
        value = torch.tensor([us], dtype=torch.float64)
        most(value)
        return value.item()

    port = Port(rank, nranks, None, Supports(lambda op, started: op == ALLREDUCE and not started), Run(run), Alloc(new_buffer), Slowest(slowest))
    loop_main = ctypes.CDLL(library).loop_main
    loop_main.argtypes = [POINTER(Port), c_char_p, c_uint]
    return loop_main(ctypes.byref(port), plan.encode(), index)


def torch_rank(library, plan, index, rank, nranks, meeting):
    import torch.distributed as dist
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=nranks)
    failed = measure(library, plan, index, rank, nranks, dist.all_reduce, lambda t: dist.all_reduce(t, dist.ReduceOp.MAX))
    dist.destroy_process_group()
    return failed


def torch_main(library, plan, index, nranks):
    with tempfile.TemporaryDirectory() as folder:
        ranks = [subprocess.Popen([sys.executable, __file__, "torch-rank", library, plan, str(index), str(nranks), str(rank), folder + "/meet"])
                 for rank in range(nranks)]
        return max([r.wait() != 0 for r in ranks])


def ray_main(library, plan, index, nranks):
    os.environ["RAY_raylet_start_wait_time_s"] = "120"  # on a busy machine
    import ray
    folder = os.path.dirname(os.path.abspath(__file__))

    @ray.remote
    class Member:
        def run(self, rank):
            # This file as a module: Ray cannot copy the classes of ctypes.
            sys.path.insert(0, folder)
            from loop_python import measure
            from ray.util import collective
            from ray.util.collective.types import ReduceOp
            collective.init_collective_group(nranks, rank, "gloo", "bench")
            return measure(library, plan, index, rank, nranks, lambda t: collective.allreduce(t, "bench"),
                           lambda t: collective.allreduce(t, "bench", ReduceOp.MAX))

    ray.init(num_cpus=nranks, include_dashboard=False, log_to_driver=False)
    members = [Member.remote() for _ in range(nranks)]
    return max(ray.get([m.run.remote(rank) for rank, m in enumerate(members)]))


def main(kind, library, plan, index, nranks, rank=None, meeting=None):
    if kind == "torch-rank":
        return torch_rank(library, plan, int(index), int(rank), int(nranks), meeting)
    return {"torch": torch_main, "ray": ray_main}[kind](library, plan, int(index), int(nranks))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
