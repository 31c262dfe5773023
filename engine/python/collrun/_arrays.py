# SPDX-License-Identifier: Apache-2.0
"""What collrun needs of the library of an array: new arrays for results, and its streams; and the
elements of collrun.Array, for programs without such a library."""

import contextlib
import math
import numbers
import operator
import struct
import sys

from ._errors import Status, UnsupportedError

_CPU, _CUDA, _ROCM, _CUDA_MANAGED = 1, 2, 10, 13  # devices of DLPack


_TYPES = "int8 to int64, uint8 to uint64, float16, bfloat16, float32, float64 and bool"
# Formats of the buffer protocol that collrun has no element type for, or not in the other byte order.
_FORMATS = {
    **dict.fromkeys("wuU", "strings"), **dict.fromkeys("zPZ&X", "pointers"), **dict.fromkeys("bhilqn", "integers"),
    **dict.fromkeys("BHILQN", "unsigned integers"), "s": "strings of bytes", "O": "objects", "T": "records",
    "e": "float16", "f": "float32", "d": "float64", "g": "long double", "Zf": "complex64", "Zd": "complex128",
}  # fmt: skip


def refuse_type(argument, x, text):
    """Raises the error of an array whose elements collrun does not have; text: their format, or ""."""
    dtype = getattr(x, "dtype", None)
    plain = text.lstrip("@=<>!|0123456789")
    name = _FORMATS.get(plain) or _FORMATS.get(plain[:1]) or f"the format '{text}'"
    hint = ""
    if dtype is not None and name not in ("strings", "strings of bytes", "records", "objects"):
        name = getattr(dtype, "name", str(dtype))
    if text[:1] in ((">", "!") if sys.byteorder == "little" else ("<",)):
        name += " in the other byte order"
        hint = "; x.astype(x.dtype.newbyteorder('=')) has the order of this machine" if dtype is not None else ""
    elif "complex" in name:
        hint = "; a view of the parts as real numbers can be moved and added"
    raise TypeError(f"{argument}: collrun has no element type for {name}; it has {_TYPES}{hint}")


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


# ---- collrun.Array ----


def share(array):
    """numpy's view of it where numpy is installed."""
    try:
        import numpy
    except Exception:  # an installation that is broken is none
        return array
    return numpy.asarray(array)


def _index(array, key):
    """Offset, shape and strides of array[key]."""
    key = key if isinstance(key, tuple) else (key,)
    axes = len(array.shape)
    dots = [i for i, k in enumerate(key) if k is Ellipsis]
    if len(dots) > 1 or len(key) - len(dots) > axes:
        raise IndexError(f"too many indices: the array has {axes} axes")
    if dots:
        key = key[: dots[0]] + (slice(None),) * (axes - len(key) + 1) + key[dots[0] + 1 :]
    offset, shape, strides = 0, [], []
    for axis, (n, stride) in enumerate(zip(array.shape, array._strides)):
        k = key[axis] if axis < len(key) else slice(None)
        if isinstance(k, slice):
            steps = range(n)[k]
            offset += steps.start * stride if steps else 0
            shape.append(len(steps))
            strides.append(steps.step * stride)
            continue
        try:
            i = operator.index(k)
        except TypeError:
            raise TypeError(f"an index is an integer, a slice or ..., not {type(k).__name__}") from None
        if not -n <= i < n:
            raise IndexError(f"index {i} is out of range: axis {axis} has the length {n}")
        offset += i % n * stride
    return offset, tuple(shape), tuple(strides)


# Types whose elements a memoryview does not read: it gets their bits.
_HALVES = ("float16", "bfloat16")


def _memory(array):
    halves = array.dtype in _HALVES
    return memoryview(array._view(0, array.shape, array._strides, True) if halves else array)


def _decode(dtype, bits):
    if dtype == "float16":
        return struct.unpack("=e", struct.pack("=H", bits))[0]
    return struct.unpack("=f", struct.pack("=I", bits << 16))[0] if dtype == "bfloat16" else bits


def _encode(dtype, value):
    """Halves are rounded to the nearest, ties to even; bfloat16 is the upper half of a float32."""
    if dtype == "float16":
        return struct.unpack("=H", struct.pack("=e", value))[0]
    if dtype == "bfloat16":
        bits = struct.unpack("=I", struct.pack("=f", value))[0]
        return bits >> 16 | 0x40 if value != value else bits + 0x7FFF + (bits >> 16 & 1) >> 16
    return float(value) if dtype.startswith("float") else bool(value) if dtype == "bool" else value


def get(array, key):
    part = array._view(*_index(array, key))
    return part if part.shape or key is Ellipsis else _decode(array.dtype, _memory(part)[()])


def iterate(array):
    if not array.shape:
        raise TypeError("an array without axes has no elements to iterate over")
    return (get(array, i) for i in range(array.shape[0]))


def to_list(array):
    return [to_list(part) if len(array.shape) > 1 else part for part in array] if array.shape else get(array, ())


def put(array, key, value):
    """array[key] = value: a number, an array of the same shape, or one whose last axes they are."""
    _fill(array._view(*_index(array, key)), value)


def _axes(value):
    """How many axes a number, an array or a nested sequence has."""
    if isinstance(value, (numbers.Number, str)) or not hasattr(value, "__len__"):
        return 0
    if hasattr(value, "shape"):
        return len(value.shape)
    return 1 + _axes(value[0]) if len(value) else 1


def _fill(array, value):
    axes = _axes(value)
    if not array.shape:
        if axes:
            raise ValueError("the value has more axes than what it is assigned to")
        if hasattr(value, "item"):
            value = value.item()
        _memory(array)[()] = _encode(array.dtype, value)
    elif axes < len(array.shape):
        for part in range(array.shape[0]) if len(array.shape) > 1 else ():
            _fill(array._view(*_index(array, part)), value)
        if len(array.shape) == 1 and array.shape[0]:
            _repeat(array, value)
    elif axes > len(array.shape) or len(value) != array.shape[0]:
        raise ValueError(f"a value of {len(value)} is assigned to {array.shape[0]} elements")
    else:
        for part in range(array.shape[0]):
            _fill(array._view(*_index(array, part)), value[part])


def _repeat(array, value):
    """The number for all elements of an array with one axis."""
    first = array._view(0, (), ())
    _fill(first, value)
    view = _memory(array)
    if not view.c_contiguous:
        for i in range(1, len(view)):
            view[i] = _memory(first)[()]
        return
    view = view.cast("B")
    done = len(view) // array.shape[0]
    while done < len(view):  # what is filled is copied, twice as much each time
        more = min(done, len(view) - done)
        view[done : done + more] = view[:more]
        done += more


def text(array):
    shape = array.shape
    is_small = math.prod(shape) <= 1000 and array.__dlpack_device__()[0] == _CPU
    values = to_list(array) if is_small else "..."
    return f"<collrun.Array {array.dtype} {shape} of group {array._group}: {values}>"
