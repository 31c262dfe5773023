# SPDX-License-Identifier: Apache-2.0
"""What collrun needs of the library of an array: new arrays for results, and its streams."""

import contextlib
import sys

from ._errors import Status, UnsupportedError

_CPU, _CUDA, _ROCM, _CUDA_MANAGED = 1, 2, 10, 13  # devices of DLPack


def empty_like(group, x, shape, dtype):
    """An uninitialised array of this shape, of the kind, element type and device of x."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(x, numpy.ndarray):
        return numpy.empty(shape, x.dtype)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return torch.empty(shape, dtype=x.dtype, device=x.device)
    if hasattr(x, "__dlpack__") and hasattr(x, "dtype"):
        library = sys.modules.get(type(x).__module__.partition(".")[0])
        if hasattr(library, "empty"):
            device = getattr(x, "device", None)  # of cupy: a context
            with device if hasattr(device, "__enter__") else contextlib.nullcontext():
                return library.empty(shape, dtype=x.dtype)
    return group.empty(shape, dtype)


def dlpack_stream(x):
    """The `stream` that x.__dlpack__ gets: its library orders that one after what it has queued.

    Operations start after the default stream of the device. None: there is no stream to give, and
    the memory can be used at once.
    """
    try:
        kind = int(x.__dlpack_device__()[0])
    except Exception:  # torch has no DLPack device of some accelerators
        kind = None
    if kind in (_CUDA, _CUDA_MANAGED):
        _refuse_capture(x)
        return 1
    if kind == _ROCM:
        return 0
    torch = sys.modules.get("torch")
    if kind != _CPU and torch is not None and isinstance(x, torch.Tensor) and not x.is_cpu:
        torch.accelerator.current_stream(x.device).synchronize()
    return None


def _refuse_capture(x):
    """The default stream cannot be ordered after a stream that captures a CUDA graph: the library would
    break the capture."""
    library = sys.modules.get(type(x).__module__.partition(".")[0])
    cuda = getattr(library, "cuda", None)
    if hasattr(cuda, "is_current_stream_capturing"):  # torch
        capturing = cuda.is_current_stream_capturing()
    elif hasattr(cuda, "get_current_stream"):  # cupy
        capturing = cuda.get_current_stream().is_capturing()
    else:
        capturing = False
    if capturing:
        raise UnsupportedError(
            "the current stream captures a CUDA graph, and operations of collrun cannot be captured: "
            "the host takes part in each. Call it outside of the capture, between the graphs",
            Status.UNSUPPORTED)
