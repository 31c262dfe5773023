# SPDX-License-Identifier: Apache-2.0
"""New arrays for results, in the library of the argument."""

import sys


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
            return library.empty(shape, dtype=x.dtype)
    return group.empty(shape, dtype)
