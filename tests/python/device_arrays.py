# SPDX-License-Identifier: Apache-2.0
"""Arrays in memory of a device, as a library such as cupy makes them, for tests without a GPU.

The runtime is a stand-in for CUDA's (tests/fake) or the one of the pretend accelerator (tests/hpu),
whose functions have the same names: use("cuda", "libcudart.so.13"), use("hpu", ".../libhpu.so").
Values are queued on a stream of this module behind other work, so that an operation that does not
come after that stream sees garbage. np.asarray(a) reads on another stream, which nothing orders.
"""

import ctypes as c

import numpy as np

CUDA, EXTENSION, BFLOAT16 = 2, 12, "bfloat16"  # bfloat16 is seen as its bits, in uint16
_NONBLOCKING, _TO_DEVICE, _TO_HOST, _BUSY, _GARBAGE = 1, 1, 2, 3, 0xEE


class _Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device", c.c_int32), ("id", c.c_int32), ("ndim", c.c_int32),
                ("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16),
                ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64)), ("byte_offset", c.c_uint64)]


_Deleter = c.CFUNCTYPE(None, c.c_void_p)


class _Versioned(c.Structure):
    _fields_ = [("major", c.c_uint32), ("minor", c.c_uint32), ("context", c.c_void_p), ("deleter", _Deleter),
                ("flags", c.c_uint64), ("tensor", _Tensor)]


_capsule_new = c.pythonapi.PyCapsule_New
_capsule_new.restype, _capsule_new.argtypes = c.py_object, [c.c_void_p, c.c_char_p, c.c_void_p]
_capsule_pointer = c.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = c.c_void_p, [c.py_object, c.c_char_p]

_exported = {}  # what a consumer holds, by address
_release = _Deleter(lambda address: _exported.pop(address) and None)
asked = []  # the kind of device and `stream` of every export


class _Runtime:
    def __init__(self, prefix, file):
        self.prefix, self.library = prefix, c.CDLL(file)
        self.writer, self.reader = {}, {}

    def __call__(self, name, *args):
        code = getattr(self.library, self.prefix + name)(*args)
        assert code == 0, f"{self.prefix}{name}: error {code}"

    def stream(self, streams, device):
        self("SetDevice", device)
        if device not in streams:
            streams[device] = c.c_void_p()
            self("StreamCreateWithFlags", c.byref(streams[device]), _NONBLOCKING)
        return streams[device]


def use(prefix, file):
    global runtime
    runtime = _Runtime(prefix, file)


class Device:
    """As cupy.cuda.Device: a context in which new arrays are on the device."""

    current = 0

    def __init__(self, number):
        self.number = number

    def __enter__(self):
        self.before, Device.current = Device.current, self.number

    def __exit__(self, *unused):
        Device.current = self.before


class Array:
    def __init__(self, shape, dtype, strides=None, read_only=False, kind=None, memory=None):
        self.shape, self.dtype, self.device = tuple(shape), dtype, Device(Device.current)
        self.strides, self.read_only = strides, read_only
        self.kind = kind or (CUDA if runtime.prefix == "cuda" else EXTENSION)
        self.bits = np.dtype("uint16" if dtype == BFLOAT16 else dtype)
        self.nbytes = int(np.prod(shape, dtype=int)) * self.bits.itemsize
        self.memory, self.borrowed = c.c_void_p(memory), memory is not None
        if not self.borrowed and self.nbytes:
            runtime("SetDevice", self.device.number)
            runtime("Malloc", c.byref(self.memory), c.c_size_t(self.nbytes))

    def __del__(self):
        if self.memory and not self.borrowed:
            runtime.library[runtime.prefix + "Free"](self.memory)

    def set(self, values):
        values = np.ascontiguousarray(values)
        stream, size = runtime.stream(runtime.writer, self.device.number), c.c_size_t(self.nbytes)
        for _ in range(_BUSY if self.nbytes else 0):
            runtime("MemsetAsync", self.memory, _GARBAGE, size, stream)
        if self.nbytes:
            runtime("MemcpyAsync", self.memory, c.c_void_p(values.ctypes.data), size, _TO_DEVICE, stream)
        return self

    def __array__(self, dtype=None, copy=None):
        values = np.empty(self.shape, self.bits)
        if self.nbytes:
            stream = runtime.stream(runtime.reader, self.device.number)
            runtime("MemcpyAsync", c.c_void_p(values.ctypes.data), self.memory, c.c_size_t(self.nbytes), _TO_HOST, stream)
            runtime("StreamSynchronize", stream)
        return values

    def __dlpack_device__(self):
        return self.kind, self.device.number

    def __dlpack__(self, *, stream=None, max_version=None):
        assert max_version and max_version[0] >= 1
        asked.append((self.kind, stream))
        mine = runtime.stream(runtime.writer, self.device.number)
        if self.kind == CUDA:
            self._order_default_stream(stream, mine)
        else:
            runtime("StreamSynchronize", mine)
        return self._capsule()

    def _order_default_stream(self, stream, mine):
        assert stream == 1, f"the consumer's stream is {stream}"
        event = c.c_void_p()
        runtime("EventCreateWithFlags", c.byref(event), 2)
        runtime("EventRecord", event, mine)
        runtime("StreamWaitEvent", c.c_void_p(None), event, 0)
        runtime("EventDestroy", event)

    def _capsule(self):
        v = _Versioned(major=1, flags=1 if self.read_only else 0, deleter=_release)
        axes = (c.c_int64 * max(1, len(self.shape)))(*self.shape)
        code = 4 if self.dtype == BFLOAT16 else {"i": 0, "u": 1, "f": 2, "b": 6}[self.bits.kind]
        v.tensor = _Tensor(self.memory, self.kind, self.device.number, len(self.shape), code, 8 * self.bits.itemsize, 1, axes)
        if self.strides:
            v.tensor.strides = (c.c_int64 * len(self.strides))(*self.strides)
        _exported[c.addressof(v)] = self, v, axes
        return _capsule_new(c.addressof(v), b"dltensor_versioned", None)


def empty(shape, dtype):
    return Array(shape, dtype)


def put(values, dtype=None):
    values = np.asarray(values)
    return Array(values.shape, dtype or values.dtype.name).set(values)


def from_dlpack(x, dtype):
    """A view of collrun.Array; x must outlive it."""
    kind, number = x.__dlpack_device__()
    capsule = x.__dlpack__(stream=1, max_version=(1, 0))
    t = _Versioned.from_address(_capsule_pointer(capsule, b"dltensor_versioned")).tensor
    assert (t.device, t.id) == (kind, number)
    with Device(number):
        return Array(t.shape[: t.ndim], dtype, kind=kind, memory=t.data)


def exported():
    """How many arrays operations hold."""
    return len(_exported)
