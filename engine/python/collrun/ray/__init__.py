# SPDX-License-Identifier: Apache-2.0
"""The functions of ray.util.collective on a collrun job: a program changes one import.

    import collrun.ray as col             # was: import ray.util.collective as col
    col.init_collective_group(world_size, rank, backend="gloo", group_name="default")
    col.allreduce(tensor, group_name="default", op=col.ReduceOp.SUM)

Results replace the contents of the given tensors; nothing is returned. Tensors are contiguous numpy,
torch or cupy arrays. What differs from Ray: processes are ranks, not actors, so
create_collective_group() takes world ranks, and every process calls it. A group of job.yaml needs
neither of the two. `backend` is a name of collrun's in any case ("gloo", "nccl", "shm", "auto").
The *_multigpu functions take one tensor for each rank, and ranks have one GPU each.
"""

import threading

from .. import Group, NotFoundError, backend_available, group, log, new_group
from .. import rank as _job_rank
from .types import Backend, ReduceOp

__all__ = [
    "Backend",
    "ReduceOp",
    "allgather",
    "allgather_multigpu",
    "allreduce",
    "allreduce_multigpu",
    "barrier",
    "broadcast",
    "broadcast_multigpu",
    "create_collective_group",
    "destroy_collective_group",
    "get_collective_group_size",
    "get_group_handle",
    "get_rank",
    "gloo_available",
    "init_collective_group",
    "is_backend_available",
    "is_group_initialized",
    "nccl_available",
    "recv",
    "recv_multigpu",
    "register_collective_backend",
    "reduce",
    "reduce_multigpu",
    "reducescatter",
    "reducescatter_multigpu",
    "send",
    "send_multigpu",
]


_operators = {"SUM": "sum", "PRODUCT": "prod", "MIN": "min", "MAX": "max"}
_groups: dict[str, Group] = {}
_created: set[str] = set()  # of _groups; the others are of job.yaml
_declared: dict[str, tuple[list[int], str, int]] = {}
_lock = threading.Lock()


# ---- groups ----


def is_backend_available(backend: str) -> bool:
    """Whether this build has the backend and it works on this host."""
    return backend_available(backend.lower()) is None


def nccl_available() -> bool:
    return is_backend_available("nccl")


def gloo_available() -> bool:
    return is_backend_available("gloo")


def register_collective_backend(name: str, group_cls) -> None:
    raise NotImplementedError(
        f"register_collective_backend({name!r}): a backend of collrun is a shared object, which `backends` of job.yaml "
        "names; collrun-backend(7) says how to write one"
    )


def _create(name: str, ranks: list[int], backend: str, gloo_timeout: int) -> Group:
    backend = "gloo" if backend.lower() == "torch_gloo" else backend.lower()
    _groups[name] = new_group(ranks, name, backend, gloo_timeout / 1000 if backend == "gloo" else None)
    _created.add(name)
    return _groups[name]


def init_collective_group(
    world_size: int, rank: int, backend: str = Backend.NCCL, group_name: str = "default", gloo_timeout: int = 30000
) -> None:
    """Makes the group of ranks 0 to world_size - 1 of the job; `rank` is this rank. All of them call it.

    gloo_timeout: of an operation, in milliseconds, if the backend is gloo.
    """
    if not group_name:
        raise ValueError(f"group_name {group_name!r} needs to be a string.")
    with _lock:
        if group_name in _groups:
            raise RuntimeError("Trying to initialize a group a second time.")
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} must be in 0 to {world_size - 1}")
        if rank != _job_rank():
            raise ValueError(
                f"rank {rank} is not this process's rank in the job, {_job_rank()}; for other ranks, use "
                "create_collective_group(world_ranks, world_size, ranks)"
            )
        _create(group_name, list(range(world_size)), backend, gloo_timeout)


def create_collective_group(
    actors: list[int],
    world_size: int,
    ranks: list[int],
    backend: str = Backend.NCCL,
    group_name: str = "default",
    gloo_timeout: int = 30000,
) -> None:
    """Declares a group: actors[i], a rank of the job, has rank ranks[i] in it. Its members form it at their first call."""
    if group_name in _declared:
        raise RuntimeError("Trying to initialize a group twice.")
    if len(ranks) != len(actors):
        raise RuntimeError(
            f"Each actor should correspond to one rank. Got '{len(ranks)}' ranks but '{len(actors)}' actors"
        )
    if sorted(ranks) != list(range(len(ranks))) or world_size != len(ranks):
        raise RuntimeError(f"Ranks must be a permutation from 0 to '{world_size - 1}'. Got '{ranks}'.")
    members = [0] * world_size
    for actor, position in zip(actors, ranks):
        members[position] = actor
    _declared[group_name] = (members, backend, gloo_timeout)


def get_group_handle(group_name: str = "default") -> Group:
    """The collrun.Group of that name: initialized, declared, or of job.yaml."""
    with _lock:
        known = _groups.get(group_name)
        if known is not None:
            return known
        if group_name in _declared:
            members, backend, gloo_timeout = _declared[group_name]
            if _job_rank() in members:
                return _create(group_name, members, backend, gloo_timeout)
        else:
            try:
                _groups[group_name] = group(group_name)
                return _groups[group_name]
            except NotFoundError:
                pass
    raise RuntimeError(f"The collective group '{group_name}' is not initialized in the process.")


def is_group_initialized(group_name: str) -> bool:
    with _lock:
        return group_name in _groups


def destroy_collective_group(group_name: str = "default") -> None:
    with _lock:
        known = _groups.pop(group_name, None)
        declared = _declared.pop(group_name, None)
    if known is None and declared is None:
        log(f"The group '{group_name}' does not exist.", "warn")
    elif group_name in _created:
        _created.discard(group_name)
        known.destroy()


def get_rank(group_name: str = "default") -> int:
    """This process's rank in the group; -1 if it is not initialized here."""
    with _lock:
        return _groups[group_name].rank if group_name in _groups else -1


def get_collective_group_size(group_name: str = "default") -> int:
    """The size of the group; -1 if it is not initialized here."""
    with _lock:
        return _groups[group_name].size if group_name in _groups else -1


# ---- operations ----


def _peer(g: Group, peer: int) -> None:
    if peer < 0:
        raise ValueError(f"rank '{peer}' is negative.")
    if peer >= g.size:
        raise ValueError(f"rank '{peer}' must be less than world size '{g.size}'")


def _tensor_list(tensors) -> None:
    if not isinstance(tensors, list):
        raise RuntimeError(f"The input must be a list of tensors. Got '{type(tensors)}'.")
    if not tensors:
        raise RuntimeError("Got an empty list of tensors.")


def _memory(tensor):
    """Address of the first element, (length, step in bytes) of the axes with the longest step first, and
    the size of an element. None: not known."""
    size = getattr(tensor, "itemsize", None) or getattr(getattr(tensor, "dtype", None), "itemsize", None)
    if hasattr(tensor, "data_ptr"):  # torch
        first, steps = tensor.data_ptr(), [step * size for step in tensor.stride()]
    else:
        memory = getattr(tensor, "__array_interface__", None) or getattr(tensor, "__cuda_array_interface__", None)
        if not memory or size is None:
            return None
        first, steps = memory["data"][0], tensor.strides
    axes = [(n, step) for n, step in zip(tensor.shape, steps) if n != 1]
    if any(n == 0 for n, _ in axes):
        return None
    first += sum((n - 1) * step for n, step in axes if step < 0)
    return first, sorted(((n, abs(step)) for n, step in axes), key=lambda axis: -axis[1]), size


def _elements(memory, most=1 << 20):
    """The addresses of the elements; None: too many."""
    first, axes, _ = memory
    addresses = [first]
    for n, step in axes:
        if len(addresses) * n > most:
            return None
        addresses = [a + i * step for a in addresses for i in range(n)]
    return set(addresses)


def _is_dense(memory):
    step = memory[2]
    for n, own in reversed(memory[1]):
        if own != step:
            return False
        step *= n
    return True


def _end(memory):
    return memory[0] + sum((n - 1) * step for n, step in memory[1]) + memory[2]


def _overlap(a, b):
    """Whether an element of one is an element of the other, and that is certain."""
    if a is None or b is None or _end(a) <= b[0] or _end(b) <= a[0]:
        return False
    if _is_dense(a) and _is_dense(b) or a == b:
        return True
    mine, theirs = _elements(a), _elements(b)
    return bool(mine and theirs and mine & theirs)


def _refuse_shared(what: str, tensors: list) -> None:
    """[tensor] * n receives the block of one rank alone."""
    known = sorted((m + (i,) for i, m in enumerate(map(_memory, tensors)) if m), key=lambda m: m[0])
    for a, b in zip(known, known[1:]):
        if _overlap(a[:3], b[:3]):
            raise ValueError(f"{what}[{min(a[3], b[3])}] and {what}[{max(a[3], b[3])}] overlap; each needs memory of its own")


def _dtype(tensor) -> str:
    """The name of the element type, which numpy, torch and cupy have in common."""
    return str(tensor.dtype).rpartition(".")[2]


def allreduce(tensor, group_name: str = "default", op: ReduceOp = ReduceOp.SUM) -> None:
    """tensor = tensor of all ranks, combined."""
    get_group_handle(group_name).allreduce(tensor, _operators[op.name])


def barrier(group_name: str = "default") -> None:
    get_group_handle(group_name).barrier()


def reduce(tensor, dst_rank: int = 0, group_name: str = "default", op: ReduceOp = ReduceOp.SUM) -> None:
    """As allreduce, at dst_rank only; elsewhere the tensor is unchanged."""
    g = get_group_handle(group_name)
    _peer(g, dst_rank)
    g.reduce(tensor, dst_rank, _operators[op.name])


def broadcast(tensor, src_rank: int = 0, group_name: str = "default") -> None:
    """tensor = tensor of src_rank."""
    g = get_group_handle(group_name)
    _peer(g, src_rank)
    g.broadcast(tensor, src_rank)


def allgather(tensor_list: list, tensor, group_name: str = "default") -> None:
    """tensor_list[i] = tensor of rank i."""
    _tensor_list(tensor_list)
    g = get_group_handle(group_name)
    if len(tensor_list) != g.size:
        raise RuntimeError("The length of the tensor list operands to allgather must be equal to world_size.")
    for i, part in enumerate(tensor_list):
        if _dtype(part) != _dtype(tensor):
            raise ValueError(f"tensor_list[{i}] is {_dtype(part)}, and the tensor {_dtype(tensor)}")
        if tuple(part.shape) != tuple(tensor.shape):
            raise RuntimeError(f"tensor_list[{i}] has the shape {tuple(part.shape)}, and the tensor {tuple(tensor.shape)}")
    _refuse_shared("tensor_list", tensor_list)
    parts = g.allgather(tensor)
    for i, part in enumerate(tensor_list):
        part[...] = parts[i]


def reducescatter(tensor, tensor_list: list, group_name: str = "default", op: ReduceOp = ReduceOp.SUM) -> None:
    """tensor = tensor_list[rank] of all ranks, combined."""
    _tensor_list(tensor_list)
    g = get_group_handle(group_name)
    if len(tensor_list) != g.size:
        raise RuntimeError("The length of the tensor list operands to reducescatter must be equal to world_size.")
    for i, part in enumerate(tensor_list):  # which is read while the result is written
        if i != g.rank and _overlap(_memory(part), _memory(tensor)):
            raise ValueError(f"tensor_list[{i}] and the tensor that receives the result overlap")
    requests = [g.reduce(t, i, _operators[op.name], tensor if i == g.rank else None, True) for i, t in enumerate(tensor_list)]
    for request in requests:
        request.wait()


def send(tensor, dst_rank: int, group_name: str = "default") -> None:
    g = get_group_handle(group_name)
    _peer(g, dst_rank)
    if dst_rank == g.rank:
        raise RuntimeError(f"The destination rank '{dst_rank}' is self.")
    g.send(tensor, dst_rank)


def recv(tensor, src_rank: int, group_name: str = "default") -> None:
    g = get_group_handle(group_name)
    _peer(g, src_rank)
    if src_rank == g.rank:
        raise RuntimeError(f"The destination rank '{src_rank}' is self.")
    g.recv(tensor, src_rank)


# ---- the functions for several GPUs of a process ----


def _only(name: str, tensors: list, gpu: int = 0):
    if not isinstance(tensors, list) or not tensors:
        raise RuntimeError(f"{name}: the input must be a list of tensors. Got '{type(tensors)}'.")
    if len(tensors) > 1 or gpu != 0:
        raise NotImplementedError(f"{name}: a rank of collrun passes one tensor; start one rank for each GPU")
    return tensors[0]


def _first(tensor, n_elements: int):
    return tensor.reshape(-1)[:n_elements] if n_elements else tensor


def allreduce_multigpu(tensor_list: list, group_name: str = "default", op: ReduceOp = ReduceOp.SUM) -> None:
    allreduce(_only("allreduce_multigpu", tensor_list), group_name, op)


def reduce_multigpu(
    tensor_list: list, dst_rank: int = 0, dst_tensor: int = 0, group_name: str = "default", op: ReduceOp = ReduceOp.SUM
) -> None:
    reduce(_only("reduce_multigpu", tensor_list, dst_tensor), dst_rank, group_name, op)


def broadcast_multigpu(tensor_list: list, src_rank: int = 0, src_tensor: int = 0, group_name: str = "default") -> None:
    broadcast(_only("broadcast_multigpu", tensor_list, src_tensor), src_rank, group_name)


def allgather_multigpu(output_tensor_lists: list, input_tensor_list: list, group_name: str = "default") -> None:
    allgather(_only("allgather_multigpu", output_tensor_lists), _only("allgather_multigpu", input_tensor_list), group_name)


def reducescatter_multigpu(
    output_tensor_list: list, input_tensor_lists: list, group_name: str = "default", op: ReduceOp = ReduceOp.SUM
) -> None:
    output = _only("reducescatter_multigpu", output_tensor_list)
    reducescatter(output, _only("reducescatter_multigpu", input_tensor_lists), group_name, op)


def send_multigpu(tensor, dst_rank: int, dst_gpu_index: int, group_name: str = "default", n_elements: int = 0) -> None:
    _only("send_multigpu", [tensor], dst_gpu_index)
    send(_first(tensor, n_elements), dst_rank, group_name)


def recv_multigpu(tensor, src_rank: int, src_gpu_index: int, group_name: str = "default", n_elements: int = 0) -> None:
    _only("recv_multigpu", [tensor], src_gpu_index)
    recv(_first(tensor, n_elements), src_rank, group_name)
