# SPDX-License-Identifier: Apache-2.0
"""The types of ray.util.collective.types that programs use."""

import enum
from dataclasses import dataclass
from datetime import timedelta


class Backend:
    """Names of backends: Backend("gloo") is Backend.GLOO. Any other name of collrun's is possible as a
    plain string."""

    NCCL = "NCCL"
    GLOO = "GLOO"
    UNRECOGNIZED = "unrecognized"
    SHM = "SHM"
    TCP = "TCP"
    UCX = "UCX"
    AUTO = "AUTO"

    def __new__(cls, name: str):
        known = "GLOO" if name.upper() == "TORCH_GLOO" else name.upper()
        if getattr(cls, known, None) != known:
            names = ", ".join(n for n in vars(cls) if n.isupper() and n != "UNRECOGNIZED")
            raise ValueError(f"Unrecognized backend: '{name}'; there are {names}")
        return known


class ReduceOp(enum.Enum):
    """The operators of Ray."""

    SUM = 0
    PRODUCT = 1
    MIN = 2
    MAX = 3


# The options of Ray's groups, which programs that derive from these groups name.
unset_timeout_ms = timedelta(milliseconds=-1)


@dataclass
class AllReduceOptions:
    reduceOp: ReduceOp = ReduceOp.SUM
    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class BarrierOptions:
    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class ReduceOptions:
    reduceOp: ReduceOp = ReduceOp.SUM
    root_rank: int = 0
    root_tensor: int = 0
    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class AllGatherOptions:
    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class BroadcastOptions:
    root_rank: int = 0
    root_tensor: int = 0
    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class ReduceScatterOptions:
    reduceOp: ReduceOp = ReduceOp.SUM
    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class SendOptions:
    dst_rank: int = 0
    dst_gpu_index: int = 0
    n_elements: int = 0
    timeout_ms: timedelta = unset_timeout_ms


@dataclass
class RecvOptions:
    src_rank: int = 0
    src_gpu_index: int = 0
    n_elements: int = 0
    unset_timeout_ms: timedelta = unset_timeout_ms
