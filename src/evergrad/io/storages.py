"""Storages of a file, the tensors that view them, and ``map_location``.

Every number a file gives is checked against the bytes that exist before memory is read or
allocated. An element type evergrad does not compute with is loaded as the smallest one that holds
all its values: float8 as float32, unsigned integers as signed ones of twice the width.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import ml_dtypes
import numpy as np

from evergrad.core import dtypes
from evergrad.core.device import CPU, Device
from evergrad.core.dtypes import dtype
from evergrad.core.op import TABLE
from evergrad.core.shapes import Shape, contiguous_strides, tensor_type
from evergrad.core.storage import Storage
from evergrad.core.tensor import Array, Tensor, on_storage
from evergrad.core.views import View
from evergrad.errors import FileFormatError
from evergrad.io.archive import Source
from evergrad.nn.module import Module
from evergrad.nn.parameter import Parameter
from evergrad.ops.surface.storages import TypedStorage, UntypedStorage

if TYPE_CHECKING:
    from evergrad.core.trace import Var
    from evergrad.core.types import Ints


class ElementType(NamedTuple):
    """An element type by PyTorch's name: how it stands in a file, and what it becomes."""

    name: str
    stored: np.dtype[np.generic]
    loaded: dtype

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def of(self, raw: Array) -> Array:
        """Bytes of a file as elements: the same memory, unless it is of no use as it is."""
        found = raw.view(self.stored)
        if self.stored != self.loaded.np:
            return found.astype(self.loaded.np)
        return found if found.flags.aligned else found.copy()


_WIDENED: dict[str, tuple[Any, dtype]] = {
    "uint16": (np.uint16, dtypes.int32),
    "uint32": (np.uint32, dtypes.int64),
    "float8_e4m3fn": (ml_dtypes.float8_e4m3fn, dtypes.float32),
    "float8_e5m2": (ml_dtypes.float8_e5m2, dtypes.float32),
    "float8_e4m3fnuz": (ml_dtypes.float8_e4m3fnuz, dtypes.float32),
    "float8_e5m2fnuz": (ml_dtypes.float8_e5m2fnuz, dtypes.float32),
    "float8_e8m0fnu": (ml_dtypes.float8_e8m0fnu, dtypes.float32),
}

ELEMENT_TYPES = {
    name: ElementType(name, np.dtype(stored), loaded) for name, (stored, loaded) in _WIDENED.items()
}
ELEMENT_TYPES.update({t.name: ElementType(t.name, t.np, t) for t in dtypes.ALL})


def element_type(type: dtype) -> ElementType:
    """How one of our own dtypes stands in a file."""
    return ELEMENT_TYPES[type.name]


_MOST_DIMENSIONS = 64  # of a NumPy array
_MOST_BYTES = 1 << 62


class StorageKind:
    """PyTorch's class of a storage: ``torch.FloatStorage`` and its like."""

    __slots__ = ("element", "name")

    def __init__(self, name: str, element: ElementType) -> None:
        self.name: str = name
        self.element: ElementType = element

    def __repr__(self) -> str:
        return f"torch.{self.name}"


_KIND_NAMES = {
    "float64": "DoubleStorage",
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "int16": "ShortStorage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
    "complex64": "ComplexFloatStorage",
    "complex128": "ComplexDoubleStorage",
}
KIND_OF = {dtype: StorageKind(name, ELEMENT_TYPES[dtype]) for dtype, name in _KIND_NAMES.items()}
# Elements whose type only the tensor states.
UNTYPED = StorageKind("storage.UntypedStorage", ELEMENT_TYPES["uint8"])


class FileStorage:
    """A storage of a file: its bytes, and the type of the elements they are looked at as.

    ``filled`` says that the bytes have been read already; ``swapped`` that they are in the other
    byte order; ``mapped`` that they are the file's memory, which weighs nothing in the ledger.
    """

    __slots__ = ("_element", "_filled", "_is_used", "_swapped", "_untyped", "raw", "storage")

    def __init__(
        self,
        raw: Array,
        kind: StorageKind,
        *,
        mapped: bool = False,
        swapped: bool = False,
        filled: bool = True,
    ) -> None:
        self.raw: Array = raw
        self._untyped = kind is UNTYPED
        self._element = kind.element
        self._filled = filled
        self._swapped = swapped
        self._is_used = False
        array = raw if self._untyped else self._elements(kind.element)
        type = tensor_type(array.shape, kind.element.loaded)
        self.storage: Storage = Storage(array, type, 0 if mapped else type.nbytes)

    def _elements(self, element: ElementType) -> Array:
        if self._swapped:
            swap_bytes(self.raw, element)
        if not self._filled and element.stored != element.loaded.np:
            raise FileFormatError(
                f"elements of type {element} are read from archives only. Load the file with "
                "PyTorch and save it again in its present format."
            )
        return element.of(self.raw)

    def fill(self, source: Source, offset: int) -> None:
        """Read the bytes that were promised, which stand in little-endian order."""
        source.fill(offset, self.raw)
        self._filled = True
        if sys.byteorder == "big":
            swap_bytes(self.raw, self._element)

    def look_at_as(self, element: ElementType) -> None:
        """Settle the type of the elements, or make sure that it is the one settled on."""
        if self._untyped:
            if self.raw.nbytes % element.stored.itemsize:
                raise FileFormatError(f"a storage does not hold whole elements of type {element}.")
            self._untyped = False
            self._element = element
            array = self.storage.value = self._elements(element)
            self.storage.type = tensor_type(array.shape, element.loaded)
            if self.storage.nbytes:
                self.storage.resize(array.nbytes)
        elif element is not self._element:
            raise FileFormatError(
                f"one storage is looked at as {self._element} and as {element}: the file is "
                "corrupted."
            )

    def tensor(self, offset: int, size: Shape, stride: Shape) -> Tensor:
        """A tensor on this storage; everything has been checked."""
        storage = self.storage
        whole: Array | Var = storage.value
        step = TABLE["as_strided"]
        attrs = {
            "size": size,
            "stride": stride,
            "offset": offset,
            "base_stride": tuple(s // whole.itemsize for s in whole.strides),
        }
        type = tensor_type(size, self._element.loaded)
        value = step.eval(whole, **attrs)
        view: View | None = View(None, ((step, attrs),), storage.version)
        if not self._is_used and type.numel == whole.size and _is_dense(size, stride):
            storage.value, storage.type, view = value, type, None
        self._is_used = True
        return on_storage(value, type, storage, view)


class Part(TypedStorage):
    """The elements of a storage that a pickle refers to; by itself, the storage."""

    __slots__ = ("_element", "_first", "_of", "numel")

    def __init__(self, of: FileStorage, element: ElementType, numel: int, first: int = 0) -> None:
        super().__init__(of.storage)
        self._of = of
        self._element = element
        self._first = first
        self.numel: int = numel

    def part(self, first: int, numel: int) -> Part:
        """Some of these elements."""
        return Part(self._of, self._element, numel, self._first + first)

    def typed_tensor(self, offset: object, size: object, stride: Ints) -> Tensor:
        """A tensor of elements of the storage's own type."""
        return self.tensor(self._element, offset, size, stride)

    def tensor(self, element: ElementType, offset: Any, size: Any, stride: Any) -> Tensor:
        """A tensor at the place a file gives, if there is such a place."""
        size, stride = _checked_layout(size, stride, element)
        own = self.numel * self._element.stored.itemsize // element.stored.itemsize
        there = self._of.raw.nbytes // element.stored.itemsize
        _require_inside(offset, size, stride, min(own, there - self._first))
        self._of.look_at_as(element)
        return self._of.tensor(self._first + offset, size, stride)


def swap_bytes(raw: Array, element: ElementType) -> None:
    """Turn elements from one byte order to the other, in place."""
    width = element.stored.itemsize // (2 if element.loaded.is_complex else 1)
    words = raw.reshape(-1, width)
    words[...] = words[:, ::-1].copy()


def storage_identity(identity: object, length: int) -> tuple[StorageKind, str, str, int, Any]:
    """What a pickle states of a storage: its kind, its key, where it was, its size, its part."""
    if type(identity) is not tuple or len(identity) != length:
        raise FileFormatError("a storage has no identity: the file is corrupted.")
    word, kind, key, location, numel, *part = map(_text, identity)
    is_text = all(type(item) is str for item in (word, key, location))
    if not is_text or word != "storage" or type(kind) is not StorageKind or not is_count(numel):
        raise FileFormatError("only storages can be referred to: the file is corrupted.")
    return kind, key, location, numel, part[0] if part else None


def _text(item: object) -> Any:
    """Text that Python 2 wrote as bytes, as text."""
    return item.decode("ascii", "replace") if type(item) is bytes else item


def is_count(value: object) -> bool:
    """Whether a value from a file is a number of things that can be."""
    return type(value) is int and 0 <= value < _MOST_BYTES


def _checked_layout(size: object, stride: Ints, element: ElementType) -> tuple[Shape, Shape]:
    if not isinstance(size, tuple) or not isinstance(stride, tuple) or len(size) != len(stride):
        raise FileFormatError("the size of a tensor is not a tuple: the file is corrupted.")
    if len(size) > _MOST_DIMENSIONS or not all(map(is_count, (*size, *stride))):
        raise FileFormatError(
            f"a tensor cannot have the size {_shown(size)} and strides {_shown(stride)}: the file "
            "is corrupted."
        )
    size = tuple(size)
    if math.prod(size) * element.loaded.itemsize >= _MOST_BYTES:
        raise FileFormatError(
            f"a tensor of size {_shown(size)} is too large to be: the file is corrupted."
        )
    if math.prod(size) <= 1:  # no step is ever made, so the strides may be anything
        return size, contiguous_strides(size)
    if max(stride) * element.loaded.itemsize >= _MOST_BYTES:
        raise FileFormatError(f"strides of {_shown(stride)} are too large: the file is corrupted.")
    return size, tuple(stride)


def _require_inside(offset: int, size: Shape, stride: Shape, numel: int) -> None:
    if not is_count(offset):
        raise FileFormatError("the place of a tensor is not a number: the file is corrupted.")
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if last >= numel if 0 not in size else offset > numel:
        raise FileFormatError(
            f"a tensor of size {_shown(size)} and strides {_shown(stride)} at {offset} does not "
            f"fit in its storage of {numel} elements: the file is truncated or corrupted."
        )


def _is_dense(size: Shape, stride: Shape) -> bool:
    """Whether the elements fill their memory, in whatever order of the dimensions."""
    step = 1
    for own, extent in sorted((s, n) for s, n in zip(stride, size, strict=True) if n != 1):
        if own != step:
            return False
        step *= extent
    return True


def _shown(numbers: tuple[object, ...]) -> str:
    listed = ", ".join(str(n) if is_count(n) else "?" for n in numbers[:8])
    return f"[{listed}{', ...' if len(numbers) > 8 else ''}]"


# What a place named in a file comes to, for a storage or (``None``) for a device.
Restore = Callable[[Storage | None, str], None]

_ACCELERATORS = ("cuda", "xpu", "mps", "hpu", "xla", "mtia", "npu")


def restorer(map_location: object) -> Restore:
    """A function that raises unless a storage from that place may be put on the CPU."""
    if map_location is None:
        return lambda storage, place: _require_cpu(place)
    if isinstance(map_location, dict):
        return lambda storage, place: _require_cpu(map_location.get(place, place))
    if isinstance(map_location, (str, bytes, Device)):
        target = map_location.decode() if isinstance(map_location, bytes) else str(map_location)
        return lambda storage, place: _require_cpu(target)
    if not callable(map_location):
        raise TypeError(
            f"'{type(map_location).__name__}' object is not callable: map_location is a device, "
            "its name, a dict of names, or a function (storage, location)"
        )
    return lambda storage, place: _ask(map_location, storage, place)


def _ask(function: Callable[..., object], storage: Storage | None, place: str) -> None:
    if storage is None:
        _require_cpu(place)
        return
    answer = function(UntypedStorage(storage), place)
    if answer is None:
        _require_cpu(place)
    elif not isinstance(answer, UntypedStorage) or answer._storage is not storage:
        raise TypeError(
            "map_location(storage, location) must return the storage it was given, or None, not "
            f"{answer!r}: there is no other place than the CPU"
        )


def _require_cpu(place: object) -> None:
    kind = str(place).partition(":")[0]
    if kind == "cpu":
        return
    if kind in _ACCELERATORS:
        raise RuntimeError(
            f"Attempting to deserialize object on a {kind.upper()} device but evergrad computes on "
            "the CPU. Please use evergrad.load with map_location=evergrad.device('cpu') to map "
            "your storages to the CPU."
        )
    raise RuntimeError(
        f"don't know how to restore data location of evergrad.UntypedStorage (tagged with {place})"
    )


def device_maker(restore: Restore) -> Callable[..., Device]:
    """``torch.device`` in a file: goes where storages of that place go."""

    def make_device(kind: str, index: int | None = None) -> Device:
        restore(None, f"{kind}" if index is None else f"{kind}:{index}")
        return CPU

    return make_device


# -- device "meta": shapes and types without numbers --------------------------------------------


def is_meta(map_location: object) -> bool:
    """Whether it names the device of tensors without memory."""
    return isinstance(map_location, str | Device) and str(map_location).partition(":")[0] == "meta"


def on_meta(value: Any, made: dict[int, Any] | None = None) -> Any:
    """What was loaded, with tensors on device "meta". Containers and modules stay the same
    objects, and a tensor that occurs twice is one tensor afterwards too."""
    made = {} if made is None else made
    if id(value) in made:
        return made[id(value)]
    if isinstance(value, Tensor):
        result: Any = value.detach().to("meta")
        if isinstance(value, Parameter):
            result = Parameter(result)
        result.requires_grad_(value.requires_grad)
    elif isinstance(value, Module):
        result = value.to("meta")
    elif isinstance(value, dict):
        for key, member in value.items():
            value[key] = on_meta(member, made)
        result = value
    elif isinstance(value, list):
        value[:] = [on_meta(member, made) for member in value]
        result = value
    elif isinstance(value, tuple):
        members = [on_meta(member, made) for member in value]
        result = type(value)(*members) if hasattr(value, "_fields") else type(value)(members)
    else:
        return value
    made[id(value)] = result
    return result
