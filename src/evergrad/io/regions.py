"""What is written of each storage: as much as the saved tensors see of it, together.

A tensor that alone looks at a storage is written alone, without the elements between its own; if
several do, everything from the first to the last element is, so that they share memory again when
they are loaded.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np

from evergrad.core.dtypes import dtype
from evergrad.core.shapes import Shape, contiguous_strides
from evergrad.core.storage import Storage
from evergrad.core.tensor import Array, Tensor
from evergrad.io.element_types import element_type
from evergrad.io.storages import KIND_OF, StorageKind, swap_bytes


class Place(NamedTuple):
    """Where a tensor stands in what is written."""

    region: Region
    offset: int
    strides: Shape


class Region:
    """The bytes written for one storage."""

    def __init__(self, key: str, type: dtype, flat: Array, low: int) -> None:
        self.key = key
        self.type = type
        self.flat = flat
        self.low = low

    @property
    def kind(self) -> StorageKind:
        return KIND_OF[self.type.name]

    @property
    def numel(self) -> int:
        return int(self.flat.size)

    def data(self) -> Array:
        """The elements as bytes, in the order of this machine."""
        return self.flat.view(np.uint8)

    def little_endian(self) -> Array:
        if sys.byteorder == "little":
            return self.data()
        data = self.data().copy()
        swap_bytes(data, element_type(self.type))
        return data


class _Seen:
    """What the tensors on one storage have been seen to look at."""

    def __init__(self, storage: Storage, type: dtype) -> None:
        self.storage = storage  # held, so that no other takes its address
        self.type = type
        self.arrays: dict[tuple[Any, ...], Array] = {}


class Regions:
    """All storages of one save: first every tensor is noticed, then places can be asked for."""

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}
        self._regions: dict[int, Region] = {}

    def notice(self, tensor: Tensor) -> None:
        storage = tensor._storage
        seen = self._seen.setdefault(id(storage), _Seen(storage, tensor.dtype))
        if seen.type is not tensor.dtype:
            raise RuntimeError(
                "Cannot save multiple tensors or storages that view the same data as different "
                f"types ({seen.type} and {tensor.dtype}); save a clone() of one of them"
            )
        array = tensor.array()
        if array.size:
            seen.arrays[_geometry(array)] = array

    def place(self, tensor: Tensor) -> Place:
        """Where a tensor that has been noticed stands."""
        if id(tensor._storage) not in self._seen:  # made anew each time the object is pickled
            self.notice(tensor)
        seen = self._seen[id(tensor._storage)]
        region = self._region(seen)
        array = tensor.array()
        if not array.size:
            return Place(region, 0, contiguous_strides(array.shape))
        if _geometry(array) not in seen.arrays:
            raise RuntimeError(
                "a tensor changed its place in memory while it was saved; save from one thread, or "
                "save a clone()"
            )
        if region.low:
            offset = (_address(array) - region.low) // array.itemsize
            return Place(region, offset, _steps(array))
        return Place(region, 0, _packed_steps(array) if _has_gaps(array) else _steps(array))

    def __iter__(self) -> Any:
        return iter(self._regions.values())

    def _region(self, seen: _Seen) -> Region:
        key = id(seen.storage)
        if key not in self._regions:
            flat, low = _laid_out(list(seen.arrays.values()), seen.type)
            self._regions[key] = Region(str(len(self._regions)), seen.type, flat, low)
        return self._regions[key]


def _laid_out(arrays: list[Array], type: dtype) -> tuple[Array, int]:
    """The elements to be written, and the address of the first; 0 for a tensor that is alone."""
    if not arrays:
        return np.empty(0, type.np), 0
    if len(arrays) == 1 and _has_gaps(arrays[0]):
        return _packed(arrays[0]), 0
    first = min(arrays, key=_address)
    low = _address(first)
    numel = max((_address(a) - low) // a.itemsize + _reach(a) for a in arrays)
    flat = np.lib.stride_tricks.as_strided(first, (numel,), (first.itemsize,), writeable=False)
    return flat, 0 if len(arrays) == 1 else low


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def _geometry(array: Array) -> tuple[Any, ...]:
    return _address(array), array.shape, _steps(array)


def _steps(array: Array) -> Shape:
    """Strides in elements."""
    if array.flags.c_contiguous:
        return contiguous_strides(array.shape)
    return tuple(s // array.itemsize for s in array.strides)


def _reach(array: Array) -> int:
    """How many elements there are from the first to the last."""
    reach: int = 1 + sum((n - 1) * s for n, s in zip(array.shape, _steps(array), strict=True))
    return reach


def _distinct(array: Array) -> Array:
    """One of each of the elements that a tensor repeats by strides of zero."""
    return array[tuple(slice(None) if s else slice(0, 1) for s in array.strides)]


def _has_gaps(array: Array) -> bool:
    """Whether there are elements between those of a tensor that it does not see."""
    return _reach(array) > _distinct(array).size


def _order(array: Array) -> list[int]:
    """The dimensions from the longest step to the shortest."""
    return sorted(range(array.ndim), key=lambda i: -array.strides[i])


def _packed(array: Array) -> Array:
    """The elements of a tensor side by side, in the order in which they stand in memory."""
    return np.ascontiguousarray(_distinct(array).transpose(_order(array))).reshape(-1)


def _packed_steps(array: Array) -> Shape:
    """The strides of a tensor after it has been packed."""
    steps = [0] * array.ndim
    step = 1
    for dim in reversed(_order(array)):
        if array.strides[dim]:
            steps[dim] = step
            step *= array.shape[dim]
    return tuple(steps)
