"""Arrays to and from DLPack capsules without a copy, bfloat16 included.

NumPy speaks DLPack but has no code for bfloat16. Such an array travels as uint16, and the two bytes
that name the element type are set in the capsule on the way out and read on the way in.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from evergrad.core.dtypes import bfloat16
from evergrad.core.types import Array

CPU_DEVICE = (1, 0)
_UNSIGNED, _BFLOAT = 1, 4
_DTYPE_OFFSET = {b"dltensor": 20, b"dltensor_versioned": 52}
# Flags, which only versioned capsules have, and the one for memory that must not be written.
_FLAGS_OFFSET, _READ_ONLY = 24, 1
_VERSION = (1, 0)


class _ElementType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


def _name_of(capsule: object) -> object:
    name_of = ctypes.pythonapi.PyCapsule_GetName
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    return name_of(capsule)


def _address(capsule: object) -> tuple[int, bytes]:
    """Where the structure inside a capsule is, and the kind of capsule."""
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    name = _name_of(capsule)
    if name not in _DTYPE_OFFSET:
        raise RuntimeError(
            "from_dlpack received an invalid capsule. Note that DLTensor capsules can be consumed "
            "only once, so you might have already constructed a tensor from it once."
        )
    return pointer_of(capsule, name), name


def _element_type(capsule: object) -> _ElementType:
    """The element type inside a capsule, to be read or overwritten."""
    address, name = _address(capsule)
    return _ElementType.from_address(address + _DTYPE_OFFSET[name])


def _is_read_only(capsule: object) -> bool:
    address, name = _address(capsule)
    if name != b"dltensor_versioned":
        return False
    return bool(ctypes.c_uint64.from_address(address + _FLAGS_OFFSET).value & _READ_ONLY)


def export_array(array: Array, **options: Any) -> Any:
    """A capsule that shares the array's memory; the options are those of ``__dlpack__``."""
    if array.dtype != bfloat16.np:
        return array.__dlpack__(**options)
    capsule = array.view(np.uint16).__dlpack__(**options)
    _element_type(capsule).code = _BFLOAT
    return capsule


class _Offer:
    """A capsule in the clothes of an array that offers it."""

    def __init__(self, capsule: object, device: tuple[int, int]) -> None:
        self.capsule = capsule
        self.device = device

    def __dlpack__(self, **options: object) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


def import_array(source: Array) -> Array:
    """An array that shares the memory of a DLPack object or capsule."""
    device = CPU_DEVICE
    capsule = source
    if hasattr(source, "__dlpack__"):
        device = source.__dlpack_device__()
        capsule = _capsule_of(source)
    elif type(source).__name__ != "PyCapsule":
        raise TypeError(
            f"from_dlpack expects an object with __dlpack__, got {type(source).__name__}"
        )
    kind = _element_type(capsule)
    narrow = (kind.code, kind.bits) == (_BFLOAT, 16)
    if narrow:
        kind.code = _UNSIGNED
    read_only = _is_read_only(capsule)
    array = np.from_dlpack(_Offer(capsule, device))
    if not read_only and not array.flags.writeable:
        array = np.asarray(_Writable(array))
    return array.view(bfloat16.np) if narrow else array


class _Writable:
    """Memory that may be written; NumPy assumes the contrary of unversioned capsules, and NumPy 2.1
    of all."""

    def __init__(self, array: Array) -> None:
        self.array = array
        address = array.__array_interface__["data"][0]
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}


def _capsule_of(source: Array) -> Any:
    try:
        return source.__dlpack__(max_version=_VERSION)
    except TypeError:  # a producer older than the versioned protocol
        return source.__dlpack__()
