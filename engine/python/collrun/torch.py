# SPDX-License-Identifier: Apache-2.0
"""The c10d backend `collrun` of torch.distributed.

    import torch.distributed as dist, collrun.torch
    dist.init_process_group("collrun", init_method="collrun://")

With `collrun://`, rank and world size are those of the job, and the store needs no port; all ranks
make their process groups again equally often. device_mesh() gives the DeviceMesh of `mesh` in the
job file, with the groups of its axes. `env://` works as well: its store is kept when the
process groups are destroyed, and serves those that are made again. The first process group with the ranks of the job's group `world`, in their order, uses that group; others are made at run time,
and destroy_process_group() closes them when their operations have completed. `make torch` builds
the extension that this module needs, for the torch (2.6 or later) of one interpreter.

Tensors on devices are known by their memory, whose kind a backend of the job declares: those on
`cuda` by nccl, those of another accelerator by the backend of its vendor. On them, wait() makes the
current stream wait, as with nccl. Import the package that adds a device type to torch before this
one, or name the type: init_process_group("cpu:collrun,npu:collrun").
"""

import atexit as _atexit
import os as _os
import sys as _sys
from datetime import timedelta as _timedelta
from itertools import count as _count

import torch as _torch_package
import torch.distributed as _dist

from . import _collrun

try:
    from . import _torch
except ImportError as _error:
    raise ImportError(
        f"collrun.torch: no extension for torch {_torch_package.__version__} ({_error}); "
        "`make torch PYTHON=python3` in collrun's source builds it for that interpreter"
    ) from _error

if _torch.torch_version.split("+")[0] != _torch_package.__version__.split("+")[0]:
    raise ImportError(
        f"collrun.torch: the extension is built for torch {_torch.torch_version}, and this is "
        f"torch {_torch_package.__version__}; run `make torch` again"
    )

Backend = _torch.Backend

# World ranks of the job, by rank of torch's default group.
_world: list[int] = []

# The group of the job that the process group which is being made shall use.
_group_of_job = "world"

# How often the rendezvous was asked for: a process group that is made again finds no keys of the
# one before.
_generations = _count()


def _members(options):
    """World ranks of the job, of the group's ranks."""
    if options.group_size == 1:
        return [_collrun.rank()]
    if options.global_ranks_in_group and _world:
        return [_world[rank] for rank in options.global_ranks_in_group]
    store = options.store
    store.set(f"collrun/{options.group_rank}", str(_collrun.rank()))
    return [int(store.get(f"collrun/{rank}")) for rank in range(options.group_size)]


def _create(options, backend_options=None):
    members = _members(options)
    timeout = options.timeout
    if not options.global_ranks_in_group:
        _world[:] = members
    if not isinstance(timeout, _timedelta):
        timeout = _timedelta(seconds=float(timeout))
    backend = _torch.create(_collrun._context(), options.group_rank, members, timeout, _group_of_job)
    if hasattr(backend, "options"):  # not before torch 2.9
        backend.options.global_ranks_in_group = list(options.global_ranks_in_group)
    return backend


def _ranks_of_mesh():
    """The ranks in COLLRUN_MESH_RANKS, "0-3,8", as ranks of torch's default group."""
    text = _os.environ.get("COLLRUN_MESH_RANKS")
    if text is None:
        raise RuntimeError("collrun.torch.device_mesh(): the list of the ranks of the mesh is too long")
    torch_ranks = {rank: index for index, rank in enumerate(_world)}
    ranks = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        ranks += range(int(first), int(last or first) + 1)
    missing = [rank for rank in ranks if rank not in torch_ranks]
    if missing:
        raise RuntimeError(
            f"collrun.torch.device_mesh(): rank {missing[0]} of the mesh is not in the default process group"
        )
    return [torch_ranks[rank] for rank in ranks]


def device_mesh(device_type=None):
    """The DeviceMesh of `mesh` in the job file: its axes in their order, by name.

    Its process groups are the groups of the job that the axes have, with their backends and
    options; a second call makes others like them. All ranks of the mesh call it together, after
    init_process_group("collrun"). device_type: "cuda" if torch finds such a device, else "cpu".
    """
    from torch.distributed.device_mesh import DeviceMesh

    global _group_of_job
    text = _os.environ.get("COLLRUN_MESH")
    if not text:
        raise RuntimeError("collrun.torch.device_mesh(): the job file has no `mesh`")
    if not _dist.is_initialized() or not _world:
        raise RuntimeError('collrun.torch.device_mesh(): call init_process_group("collrun") first')
    names, sizes = zip(*((name, int(size)) for name, size in (axis.split("=") for axis in text.split(","))))
    ranks = _torch_package.tensor(_ranks_of_mesh(), dtype=_torch_package.int).reshape(sizes)
    me = _dist.get_rank()
    where = (ranks == me).nonzero()
    if not len(where):
        raise RuntimeError(f"collrun.torch.device_mesh(): rank {_collrun.rank()} is not in the mesh")
    groups = []
    for axis, name in enumerate(names):
        index = [int(i) for i in where[0]]
        index[axis] = slice(None)
        _group_of_job = name
        try:
            groups.append(_dist.new_group(ranks[tuple(index)].tolist(), use_local_synchronization=True))
        finally:
            _group_of_job = "world"
    if device_type is None:
        device_type = "cuda" if _torch_package.cuda.is_available() else "cpu"
    return DeviceMesh.from_group(
        groups if len(groups) > 1 else groups[0], device_type, mesh=ranks, mesh_dim_names=names
    )


def _rendezvous(url, timeout=_timedelta(minutes=30), **unused):
    store = _dist.PrefixStore(f"{next(_generations)}", _torch.store(_collrun._context(), timeout))
    yield store, _collrun.rank(), _collrun.world_size()


# The stores that env:// has made, by what it reads from the environment, and how often each was
# given. torch closes its own with the process group: while rank 0 does that, another rank that
# makes its process group again connects to it, and fails.
_env_stores: dict[tuple, list] = {}


def _keep_env_store(original):
    def rendezvous(url, **arguments):
        place = (url, *(_os.environ.get(name) for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")))
        known = _env_stores.get(place)
        if known is None:
            store, rank, size = next(original(url, **arguments))
            _env_stores[place] = [store, rank, size, 1]
            yield store, rank, size
        else:
            store, rank, size, times = known
            known[3] += 1
            yield _dist.PrefixStore(f"again{times}", store), rank, size
        raise RuntimeError("the rendezvous of env:// cannot be repeated")

    return rendezvous


def _stop():
    # After an exception nothing is waited for: peers learn of the exit.
    if not hasattr(_sys, "last_value") and _collrun.is_initialized():
        _torch.stop()


def _device_types():
    types = ["cpu", "cuda", "xpu", "hpu"]
    added = _torch_package._C._get_privateuse1_backend_name()
    return types if added == "privateuseone" or added in types else [*types, added]


_dist.Backend.register_backend("collrun", _create, extended_api=True, devices=_device_types())
_dist.register_rendezvous_handler("collrun", _rendezvous)
_handlers = getattr(_sys.modules["torch.distributed.rendezvous"], "_rendezvous_handlers", {})
if "env" in _handlers and "COLLRUN_RANK" in _os.environ:
    _handlers["env"] = _keep_env_store(_handlers["env"])
_atexit.register(_stop)
