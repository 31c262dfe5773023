# SPDX-License-Identifier: Apache-2.0
"""Collective operations and messages between the ranks of a collrun job.

    import collrun, numpy as np
    g = collrun.group("train")            # of job.yaml; collrun.group() is world
    x = np.ones(8, "float32")
    g.allreduce(x)                        # x is now the sum over all ranks

A rank is a process that `collrun job.yaml` starts: `command: [python3, train.py]`. The first call
that needs the job joins it, and an exit with code 0 leaves it.
"""

import sys as _sys

if _sys.version_info < (3, 11):
    raise ImportError(
        f"collrun: Python 3.11 or later is needed, and this is {_sys.version.split()[0]} ({_sys.executable})"
    )

from ._collrun import (
    ANY_TAG,
    Array,
    Group,
    Request,
    __version__,
    address,
    attempt,
    backend_available,
    fail,
    failed,
    finalize,
    gpu_count,
    group,
    groups,
    host,
    is_initialized,
    local_rank,
    local_size,
    log,
    metric,
    new_group,
    progress,
    rank,
    run_dir,
    run_id,
    stopping,
    world_size,
)
from ._errors import (
    AbortedError,
    BackendError,
    Error,
    ExistsError,
    InvalidError,
    MismatchError,
    NotFoundError,
    NotMemberError,
    OutOfMemoryError,
    PeerFailedError,
    Status,
    SystemCallError,
    TimeoutError,
    UnavailableError,
    UnsupportedError,
)
from . import _names
from ._report import install as _install_report
from ._signals import install as _install_signals
from ._traceback import install as _install_traceback

__all__ = [name for name in dir() if not name.startswith("_")] + ["__version__"]

_install_report()
_install_traceback()
_install_signals()


def __getattr__(name):
    hint = "" if name.startswith("_") else _names.suggest(name, False, __all__)
    raise AttributeError(f"module 'collrun' has no attribute '{name}'{hint}")
