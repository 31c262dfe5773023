# SPDX-License-Identifier: Apache-2.0
"""The types of ray.util.collective.types that programs use."""

import enum


class Backend:
    """Names of backends; any other name of collrun's is possible."""

    NCCL = "NCCL"
    GLOO = "GLOO"


class ReduceOp(enum.Enum):
    """The operators of Ray."""

    SUM = 0
    PRODUCT = 1
    MIN = 2
    MAX = 3
