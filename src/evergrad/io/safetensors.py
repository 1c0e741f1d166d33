"""Tensors by name in safetensors files, through the ``safetensors`` package.

A file is checked when it is opened and mapped, not read: a tensor costs memory when its elements
are first looked at, and the file is never written to. Types evergrad does not calculate with are
widened when they are loaded (see :mod:`evergrad.io.storages`), which reads them.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping
from io import BufferedReader
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, TensorSpec, deserialize, serialize, serialize_file
from safetensors import safe_open as package_open

from evergrad.core.shapes import Shape, contiguous_strides
from evergrad.core.tensor import Array, Tensor
from evergrad.errors import FileFormatError
from evergrad.io.archive import Source
from evergrad.io.storages import ELEMENT_TYPES, FileStorage, StorageKind, restorer
from evergrad.utils.atomic_file import replacing
from evergrad.utils.bounded_read import open_regular

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike, Index

__all__ = ["load", "load_file", "safe_open", "save", "save_file"]

Tensors = Mapping[str, Tensor | Array]

_TYPE_NAMES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64",
    "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64", "C64": "complex64",
    "U16": "uint16", "U32": "uint32", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz", "F8_E8M0": "float8_e8m0fnu",
}  # fmt: skip


# Of an array of NumPy.
_MOST_DIMS = 64


# -- writing ------------------------------------------------------------------------------------


def save_file(
    tensors: Tensors,
    filename: str | os.PathLike[str],
    metadata: dict[str, str] | None = None,
) -> None:
    """Write tensors (or NumPy arrays) to a file, whole or not at all."""
    arrays = _arrays(tensors)
    with replacing(filename) as file:
        serialize_file(_specs(arrays), file.name, metadata=metadata)


def save(tensors: Tensors, metadata: dict[str, str] | None = None) -> bytes:
    """The bytes of a file of tensors."""
    arrays = _arrays(tensors)
    return bytes(serialize(_specs(arrays), metadata=metadata))


def _arrays(tensors: Tensors) -> dict[str, Array]:
    """The elements to be written, after checking that they can be."""
    if not isinstance(tensors, Mapping):
        raise ValueError(
            f"Expected a dict of [str, Tensor] but received {type(tensors)}; as in "
            "save_file(model.state_dict(), path)"
        )
    arrays: dict[str, Array] = {}
    owners: dict[int, list[str]] = {}
    for name, value in tensors.items():
        if not isinstance(value, (Tensor, np.ndarray)):
            raise ValueError(f"Key `{name}` is invalid, expected Tensor but received {type(value)}")
        if name == "__metadata__":
            raise ValueError("Key `__metadata__` is that of the metadata: the file is not readable")
        if isinstance(value, Tensor):
            owners.setdefault(id(value._storage), []).append(name)
            value = value.array()
        _require_writable(name, value)
        arrays[name] = value
    shared = [names for names in owners.values() if len(names) > 1]
    if shared:
        raise RuntimeError(
            f"Some tensors share memory, this will lead to duplicate memory on disk: {shared}. "
            "Save one of each, or a clone() of the others."
        )
    return arrays


def _require_writable(name: str, array: Array) -> None:
    if not array.flags.c_contiguous:
        raise ValueError(
            f"You are trying to save a non contiguous tensor: `{name}` which is not allowed. Save "
            "the tensor it is a view of, or call `.contiguous()` on it."
        )
    if not array.dtype.isnative or array.dtype == np.complex128:
        raise ValueError(
            f"safetensors files cannot hold the type {array.dtype} of `{name}`; convert it first"
        )


def _specs(arrays: dict[str, Array]) -> dict[str, TensorSpec]:
    return {
        name: TensorSpec(
            dtype=array.dtype.name,
            shape=array.shape,
            data_ptr=array.__array_interface__["data"][0],
            data_len=array.nbytes,
        )
        for name, array in arrays.items()
    }


# -- reading ------------------------------------------------------------------------------------


def load_file(filename: str | os.PathLike[str], device: DeviceLike = "cpu") -> dict[str, Tensor]:
    """All tensors of a file, none of which is read before it is used."""
    with safe_open(filename, device=device) as file:
        return file.get_tensors()


def load(data: bytes) -> dict[str, Tensor]:
    """The tensors in the bytes of a file, in memory of their own."""
    try:
        entries = deserialize(data)  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise FileFormatError(f"the data are not those of a safetensors file: {error}") from None
    tensors = {}
    for name, entry in entries:
        raw = np.frombuffer(bytearray(entry["data"]), np.uint8)
        place = _Place(entry["dtype"], tuple(entry["shape"]), 0, raw.size)
        tensors[name] = place.tensor(name, raw, mapped=False)
    return tensors


class _Place(NamedTuple):
    """Where a tensor stands in a file, and as what."""

    type: str
    shape: Shape
    begin: int
    end: int

    def tensor(self, name: str, memory: Array, *, mapped: bool) -> Tensor:
        if self.type not in _TYPE_NAMES:
            raise TypeError(
                f"evergrad has no element type for {self.type}, the type of `{name}`, nor one that "
                "holds all its values; safe_open(...).get_array(name) gives a NumPy array"
            )
        self._require_shape(name)
        element = ELEMENT_TYPES[_TYPE_NAMES[self.type]]
        raw = memory[self.begin : self.end]
        stored = FileStorage(raw, StorageKind(element.name, element), mapped=mapped)
        return stored.tensor(0, self.shape, contiguous_strides(self.shape))

    def array(self, name: str, memory: Array) -> Array:
        if self.type == "U64":
            stored: Any = np.uint64
        elif self.type in _TYPE_NAMES:
            stored = ELEMENT_TYPES[_TYPE_NAMES[self.type]].stored
        else:
            raise TypeError(f"NumPy has no element type for {self.type}, the type of `{name}`")
        self._require_shape(name)
        array: Array = memory[self.begin : self.end].view(stored).reshape(self.shape)
        return array

    def _require_shape(self, name: str) -> None:
        """Refuse what the package accepts where there are no elements, or many extents of 1."""
        if len(self.shape) > _MOST_DIMS or 8 * math.prod(n for n in self.shape if n) > sys.maxsize:
            raise FileFormatError(
                f"not a valid safetensors file: `{name}` has {len(self.shape)} dimensions, or "
                f"extents that no array has: {self.shape[:8]}"
            )


class safe_open:  # noqa: N801 - the package's spelling
    """A file of which tensors are taken one by one, as they are needed.

    ``with safe_open("model.safetensors") as f: weight = f.get_tensor("weight")``
    """

    def __init__(
        self,
        filename: str | os.PathLike[str],
        framework: str = "evergrad",
        device: DeviceLike = "cpu",
    ) -> None:
        restorer(device)(None, "cpu")
        with open_regular(filename) as file:
            _validate(filename)
            _require_same(file, filename)
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
            self._memory = Source(file, os.fspath(filename)).mapped()[8 + length :]
        self._metadata: dict[str, str] | None = header.pop("__metadata__", None)
        self._places = {
            name: _Place(entry["dtype"], tuple(entry["shape"]), *entry["data_offsets"])
            for name, entry in header.items()
        }

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *exception: object) -> None:
        """Tensors that were taken keep the file mapped; there is nothing else to close."""

    def keys(self) -> list[str]:
        """The names of the tensors."""
        return sorted(self._places)

    def offset_keys(self) -> list[str]:
        """The names in the order in which the tensors stand in the file."""
        return sorted(self._places, key=lambda name: self._places[name].begin)

    def metadata(self) -> dict[str, str] | None:
        """The text that was saved with the tensors."""
        return self._metadata

    def get_tensor(self, name: str) -> Tensor:
        """A tensor on the memory of the file, private when it is written."""
        return self._place(name).tensor(name, self._memory, mapped=True)

    def get_tensors(self) -> dict[str, Tensor]:
        """All tensors by name."""
        return {name: self.get_tensor(name) for name in self._places}

    def get_array(self, name: str) -> Array:
        """The elements as a NumPy array, of the very type they have in the file."""
        return self._place(name).array(name, self._memory)

    def get_slice(self, name: str) -> Slice:
        """A tensor of which only a part is to be read: ``f.get_slice("weight")[:, ::8]``."""
        return Slice(self.get_tensor(name), self._place(name).type)

    def _place(self, name: str) -> _Place:
        if name not in self._places:
            raise FileFormatError(f"File does not contain tensor {name}")
        return self._places[name]


class Slice:
    """A tensor of a file that is still to be indexed."""

    def __init__(self, tensor: Tensor, type: str) -> None:
        self._tensor = tensor
        self._type = type

    def __getitem__(self, index: Index) -> Tensor:
        return self._tensor[index]

    def get_shape(self) -> list[int]:
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        return self._type


def _validate(filename: str | os.PathLike[str]) -> None:
    """Have the package check that the header is right and covers exactly the bytes there are."""
    try:
        with package_open(filename, framework="np"):
            pass
    except SafetensorError as error:
        raise FileFormatError(
            f"{os.fspath(filename)} is not a valid safetensors file: {error}. It is truncated or "
            "corrupted; get it again."
        ) from None


def _require_same(file: BufferedReader, filename: str | os.PathLike[str]) -> None:
    """Whether the package has checked the file that was opened, and not one that took its name."""
    if not os.path.samestat(os.fstat(file.fileno()), os.stat(filename)):
        raise FileFormatError(f"{os.fspath(filename)} was replaced while it was opened; try again")
