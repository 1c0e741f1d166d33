"""``save``: writes files that PyTorch reads too, whole or not at all.

Tensors are pickled under PyTorch's names, their bytes apart, as records of an aligned archive. A
tensor that is the only view of a storage is written alone, without the elements between its own; of
a storage with several views everything from the first to the last element is written, so that they
share memory again when they are loaded.
"""

from __future__ import annotations

import codecs
import io
import os
import pickle
import struct
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from evergrad.core.device import Device
from evergrad.core.dtypes import dtype
from evergrad.core.memory_format import layout
from evergrad.core.shapes import Shape, Size, contiguous_strides
from evergrad.core.storage import Storage
from evergrad.core.tensor import Array, Tensor, detached
from evergrad.io import objects
from evergrad.io.allowed_names import TORCH_NAMES
from evergrad.io.archive import is_path
from evergrad.io.legacy import write_legacy
from evergrad.io.nested_parts import keywords_of, rebuild_jagged
from evergrad.io.objects import LAYOUTS, SparseMaker, parts_of
from evergrad.io.storages import KIND_OF, StorageKind, element_type, swap_bytes
from evergrad.nested.jagged import NestedTensor
from evergrad.nn.parameter import Buffer, Parameter
from evergrad.ops.surface.storages import UntypedStorage
from evergrad.utils.atomic_file import replacing


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
        self.arrays: dict[tuple[object, ...], Array] = {}


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

    def __iter__(self) -> Iterator[Region]:
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


def _geometry(array: Array) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
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


_WAYS_TO_REDUCE = (Tensor.__reduce_ex__, Parameter.__reduce_ex__)


def pickled(obj: object, protocol: int, *, legacy: bool) -> tuple[bytes, Regions]:
    """An object as a pickle, and the regions of storages it refers to."""
    regions = Regions()
    _Surveyor(regions, protocol).dump(obj)
    file = io.BytesIO()
    _Writer(file, protocol, regions, legacy).dump(obj)
    return file.getvalue(), regions


def _is_written_here(obj: object) -> bool:
    """Whether a tensor is written as PyTorch does, not as its class asks for."""
    if not isinstance(obj, Tensor):
        return False
    return type(obj).__reduce_ex__ in _WAYS_TO_REDUCE or _is_sparse(obj)


class _Surveyor(pickle.Pickler):
    """Walks through an object as if to pickle it, and notices its tensors."""

    def __init__(self, regions: Regions, protocol: int) -> None:
        super().__init__(io.BytesIO(), protocol)
        self._regions = regions

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, UntypedStorage):
            raise TypeError("storages cannot be saved by themselves; save a tensor on them")
        if not _is_written_here(obj):
            return NotImplemented
        if _is_sparse(obj):
            return tuple, (parts_of(obj),)
        self._regions.notice(obj)
        return dict, (), obj.__dict__ or None


class _Writer(pickle._Pickler):
    """Pickles objects; what PyTorch knows gets PyTorch's name.

    It is Python's own pickler in Python, because the one in C looks every name up in the module it
    claims to be from, and PyTorch need not be there.
    """

    def __init__(self, file: Any, protocol: int, regions: Regions, legacy: bool) -> None:
        super().__init__(file, protocol)
        self._regions = regions
        self._legacy = legacy
        self._is_old = protocol < 3  # has no instruction for bytes

    def persistent_id(self, obj: object) -> object:
        if not isinstance(obj, Region):
            return None
        identity = ("storage", obj.kind, obj.key, "cpu", obj.numel)
        return (*identity, None) if self._legacy else identity

    def reducer_override(self, obj: Any) -> Any:
        if id(obj) in TORCH_NAMES:
            return TORCH_NAMES[id(obj)]
        if type(obj) is bytes and not obj and self._is_old:
            return codecs.encode, ("", "latin1")  # as all other bytes, so that PyTorch takes them
        if type(obj) is Size:
            return Size, (tuple(obj),)
        if type(obj) is Device:
            return Device, (obj.type,)
        if isinstance(obj, layout):
            return objects.layout_named, (f"torch.{obj.name}",)
        if isinstance(obj, NestedTensor):
            return rebuild_jagged, (keywords_of(obj),)
        return self._reduced(obj) if _is_written_here(obj) else NotImplemented

    def _reduced(self, tensor: Tensor) -> object:
        """A tensor as the call that makes it again."""
        state = dict(tensor.__dict__)
        hooks: OrderedDict[Any, Any] = OrderedDict()
        if type(tensor) is Parameter:
            args = (detached(tensor), tensor.requires_grad, hooks)
            return (
                (objects.parameter_with_state, (*args, state))
                if state
                else (objects.parameter, args)
            )
        function, args = self._reduced_elements(tensor, hooks)
        if type(tensor) is Buffer:
            state["_is_buffer"] = True
            return objects.from_type, (function, Tensor, args, state)
        if (type(tensor) is Tensor and not state) or _is_sparse(tensor):
            return function, args
        return objects.from_type, (function, type(tensor), args, state)

    def _reduced_elements(self, tensor: Tensor, hooks: object) -> tuple[Any, tuple[Any, ...]]:
        if _is_sparse(tensor):
            return SparseMaker.make, (tensor.layout, parts_of(tensor))
        place = self._regions.place(tensor)
        shape = tuple(tensor.shape)
        flag = tensor.requires_grad
        return objects.tensor_v2, (place.region, place.offset, shape, place.strides, flag, hooks)

    def save_global(self, obj: object, name: str | None = None) -> None:
        """Write a reference by name, which is not looked up now."""
        path = TORCH_NAMES.get(id(obj))
        if path is None:
            super().save_global(obj, name)  # type: ignore[misc]
            return
        module, _, own_name = f"torch.{path}".rpartition(".")
        self.write(pickle.GLOBAL + f"{module}\n{own_name}\n".encode())  # type: ignore[attr-defined]
        self.memoize(obj)  # type: ignore[attr-defined]


def _is_sparse(tensor: Tensor) -> bool:
    return any(tensor.layout is known for known in LAYOUTS)


# The folder inside an archive that holds all records.
ROOT = "archive"
# Tensors begin at a multiple of this, so that a mapped file can be calculated with as it is.
ALIGNMENT = 64

_FIXED_HEADER = 30
_EXTRA64_LENGTH = 20
# The kind PyTorch gives to the header field that pads it, and the size of that field when empty.
_PADDING_KIND, _PADDING_SIZE = b"FB", 4
_DATE = (1980, 1, 1, 0, 0, 0)


def write_archive(
    file: Any, pickled: bytes, regions: Iterable[Region], *, with_byte_order: bool
) -> None:
    """Write one pickle and the bytes it refers to."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        _write(archive, "data.pkl", pickled)
        _write(archive, ".storage_alignment", str(ALIGNMENT).encode())
        if with_byte_order:
            _write(archive, "byteorder", sys.byteorder.encode())
        for region in regions:
            _write(archive, f"data/{region.key}", region.data().data)
        _write(archive, "version", b"3\n")


def _write(archive: zipfile.ZipFile, name: str, data: bytes | memoryview) -> None:
    info = zipfile.ZipInfo(f"{ROOT}/{name}", _DATE)
    is_large = len(data) > zipfile.ZIP64_LIMIT
    info.extra = _padding(archive, len(info.filename) + (_EXTRA64_LENGTH if is_large else 0))
    with archive.open(info, "w", force_zip64=is_large) as record:
        record.write(data)


def _padding(archive: zipfile.ZipFile, names: int) -> bytes:
    """A header field after which the data begin at a multiple of the alignment."""
    assert archive.fp is not None
    unpadded = archive.fp.tell() + _FIXED_HEADER + names + _PADDING_SIZE
    count = -unpadded % ALIGNMENT
    return struct.pack("<2sH", _PADDING_KIND, count) + bytes(count)


DEFAULT_PROTOCOL = 2


def save(
    obj: object,
    f: Any,
    pickle_module: object = pickle,
    pickle_protocol: int = DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:
    """Save an object to a path or a file object, in PyTorch's format.

    A path either has the former file or the whole new one, whatever happens. Tensors that share
    memory still do when they are loaded; of a storage only what they see is written.

    >>> import io
    >>> file = io.BytesIO()
    >>> eg.save(nn.Linear(2, 1).state_dict(), file)
    >>> _ = file.seek(0)
    >>> sorted(eg.load(file))
    ['bias', 'weight']
    """
    if not is_path(f) and not hasattr(f, "write"):
        raise AttributeError(
            "expected 'f' to be string, path, or a file-like object with a 'write' attribute"
        )
    if pickle_module is not pickle:
        raise ValueError("files are written by evergrad's own pickler; leave pickle_module out")
    if not 2 <= pickle_protocol <= pickle.HIGHEST_PROTOCOL:
        raise ValueError(
            f"pickle protocol must be from 2 to {pickle.HIGHEST_PROTOCOL}, not {pickle_protocol}"
        )
    data, regions = pickled(obj, pickle_protocol, legacy=not _use_new_zipfile_serialization)
    with replacing(os.fspath(f)) if is_path(f) else nullcontext(f) as file:
        if _use_new_zipfile_serialization:
            write_archive(file, data, regions, with_byte_order=not _disable_byteorder_record)
        else:
            write_legacy(file, data, regions)
