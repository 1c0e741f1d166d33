"""Values in files: safetensors with the shapes as metadata, CSV, and the older ``.vsla`` files."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad import config
from evergrad.core import dtypes
from evergrad.core.dtypes import as_dtype
from evergrad.core.tensor import Array, from_array
from evergrad.errors import FileFormatError
from evergrad.io.safetensors import safe_open, save_file
from evergrad.ragged.batch import Batch, batch
from evergrad.ragged.value import Tensor, as_shapes, check_shapes, tensor
from evergrad.utils.atomic_file import replacing
from evergrad.utils.bounded_read import read_bounded

if TYPE_CHECKING:
    from evergrad.core.types import DtypeLike

Path = str | os.PathLike[str]

# The entry of a file's metadata, and its version.
_ENTRY, _VERSION = "evergrad.ragged", 1
_HOW = "set EVERGRAD_UNPACKED_BYTES"


def save(values: Mapping[str, Tensor | Batch], path: Path) -> None:
    """Write values by name to a safetensors file, whole or not at all. Elements are stored flat,
    without padding; shapes are in the metadata, which other readers of the format show.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ragged.save({"x": ragged.tensor([1.0, 2.0])}, f"{folder}/values.safetensors")
    ...     ragged.load(f"{folder}/values.safetensors")["x"]
    ragged.tensor([1., 2.])
    """
    layouts: dict[str, object] = {}
    elements = {}
    for name, value in values.items():
        if isinstance(value, Batch):
            layouts[name] = {"shapes": value.shapes, "batch_shape": value.batch_shape}
        elif isinstance(value, Tensor):
            layouts[name] = {"shape": value.layout}
        else:
            raise TypeError(f"save(): {name!r} is a {type(value).__name__}, not a ragged value")
        elements[name] = np.ascontiguousarray(value.elements.detach().numpy()).reshape(-1)
    entry = json.dumps({"version": _VERSION, "values": layouts})
    save_file(elements, path, {_ENTRY: entry})


def load(path: Path) -> dict[str, Tensor | Batch]:
    """The values of a file that :func:`save` wrote.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ragged.save({"x": ragged.tensor([1.0, 2.0])}, f"{folder}/values.safetensors")
    ...     ragged.load(f"{folder}/values.safetensors")["x"]
    ragged.tensor([1., 2.])
    """
    with safe_open(path) as file:
        try:
            entry = json.loads((file.metadata() or {}).get(_ENTRY, "null"))
        except (ValueError, RecursionError):
            entry = None
        if not isinstance(entry, dict) or entry.get("version") != _VERSION:
            raise FileFormatError(
                f"{os.fspath(path)} holds no ragged values of version {_VERSION}.\n"
                "  fix: evergrad.io.safetensors.load_file reads its dense tensors."
            )
        try:
            return {name: _value(file, name, at) for name, at in entry["values"].items()}
        except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise FileFormatError(
                f"{os.fspath(path)}: the shapes do not go with the elements: {error}"
            ) from None


def _value(file: safe_open, name: str, layout: dict[str, Any]) -> Tensor | Batch:
    elements = file.get_tensor(name)
    if "shapes" in layout:
        return Batch(elements, layout["shapes"], layout["batch_shape"])
    shapes = as_shapes([layout["shape"]])
    check_shapes("Tensor()", shapes)
    return Tensor(elements.reshape(shapes[0]))


# -- CSV ----------------------------------------------------------------------------------------


def write_csv(value: Tensor | Batch, path: Path) -> None:
    """Write a line for each vector of a batch, for each row of a matrix, or the one line of a
    vector. Numbers are written in full, so that :func:`read_csv` gives the same.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ragged.write_csv(ragged.batch([[1.0, 2.0], [3.0]]), f"{folder}/values.csv")
    ...     print(Path(f"{folder}/values.csv").read_text(), end="")
    1.0,2.0
    3.0
    """
    items = list(value) if isinstance(value, Batch) else [value]
    if isinstance(value, Tensor) and value.ndim == 2:
        items = [Tensor(row) for row in value.dense.detach().unbind()]
    if any(item.ndim > 1 for item in items):
        raise ValueError("write_csv(): only vectors, matrices and batches of vectors have lines")
    with replacing(path) as file:
        text = "\n".join(",".join(map(repr, np.atleast_1d(i.numpy()).tolist())) for i in
                         (item.detach() for item in items))  # fmt: skip
        file.write((text + "\n" if items else "").encode())


def read_csv(path: Path, dtype: DtypeLike = None) -> Batch:
    """A batch with a vector for each line, of as many numbers as it has; an empty line is zero.

    Numbers are read in the element type, float64 if none is given: integers of 64 bits keep all
    their digits, complex numbers are those that Python writes.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ragged.write_csv(ragged.batch([[1.0, 2.0], [3.0]]), f"{folder}/values.csv")
    ...     ragged.read_csv(f"{folder}/values.csv")
    ragged.batch([[1.0, 2.0], [3.0]], batch_shape=(2,))
    """
    kind = dtypes.float64 if dtype is None else as_dtype(dtype)
    try:
        text = read_bounded(path, config.UNPACKED_BYTES, _HOW).decode("utf-8-sig")
        lines = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise FileFormatError(f"{os.fspath(path)} is no CSV file: {error}") from None
    values = []
    for number, line in enumerate(lines, 1):
        try:
            with np.errstate(over="ignore"):  # to infinity, as in a conversion
                array = np.array([_number(x, kind) for x in line], kind.np)
        except (ValueError, OverflowError) as error:
            raise FileFormatError(f"{os.fspath(path)}, line {number}: {error}") from None
        values.append(tensor(array, kind))
    return batch(values, kind)


def _number(text: str, kind: dtypes.dtype) -> bool | complex | float:
    """A number as Python writes it; none of its digits may be grouped."""
    if "_" in text:
        raise ValueError(f"could not convert {text!r} to a number")
    if kind is dtypes.bool_:
        if text.strip() not in ("True", "False"):
            raise ValueError(f"{text!r} is neither True nor False")
        return text.strip() == "True"
    if kind.is_complex:
        return complex(text)
    return int(text) if kind.category < dtypes.FLOATING else float(text)


# -- .vsla --------------------------------------------------------------------------------------

_MAGIC = b"VSLAv01\0"
_BYTE_ORDERS = {0: "<", 1: ">"}
_DTYPES = {0: "f8", 1: "f4"}


def read_vsla(path: Path) -> Tensor:
    """The value in a ``.vsla`` file of version 1.

    The file has the magic number, a byte each for byte order, rank, model and element type, four
    reserved ones, then shape, capacities and strides as 64-bit integers, and the elements of the
    capacities in row-major order; those outside the shape are dropped.

    >>> import struct, tempfile
    >>> from pathlib import Path
    >>> header = b"VSLAv01" + bytes([0, 0, 1, 0, 0, 0, 0, 0, 0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "x.vsla")
    ...     _ = path.write_bytes(header + struct.pack("<3Q2d", 2, 2, 8, 1.0, 2.0))
    ...     ragged.read_vsla(path)
    ragged.tensor([1., 2.], dtype=evergrad.float64)
    """
    data = read_bounded(path, config.UNPACKED_BYTES, _HOW)
    try:
        return Tensor(from_array(_parse_vsla(data)))
    except ValueError as error:
        raise FileFormatError(f"{os.fspath(path)} is no valid .vsla file: {error}") from None


def _parse_vsla(data: bytes) -> Array:
    if len(data) < 16 or data[:8] != _MAGIC:
        raise ValueError("it does not begin with the magic number and a header")
    order, rank, model, dtype = data[8:12]
    if order not in _BYTE_ORDERS or dtype not in _DTYPES or model > 1 or not rank:
        raise ValueError(f"byte order {order}, rank {rank}, model {model}, element type {dtype}")
    end = 16 + 24 * rank
    if len(data) < end:
        raise ValueError("it ends within the header")
    mark, code = _BYTE_ORDERS[order], _DTYPES[dtype]
    numbers = struct.unpack(f"{mark}{3 * rank}Q", data[16:end])
    shape, capacity, strides = (numbers[i * rank : (i + 1) * rank] for i in range(3))
    size = int(code[1])
    expected = [size * math.prod(capacity[i + 1 :]) for i in range(rank)]
    if any(n > m for n, m in zip(shape, capacity, strict=True)):
        raise ValueError(f"the shape {shape} is larger than the capacities {capacity}")
    if list(strides) != expected:
        raise ValueError(f"strides {strides} are not those of capacities {capacity} in row order")
    if len(data) - end != size * math.prod(capacity):
        raise ValueError(
            f"{len(data) - end} bytes of elements, where the capacities need "
            f"{size * math.prod(capacity)}"
        )
    whole = np.frombuffer(data, mark + code, offset=end).reshape(capacity)
    return whole[tuple(slice(0, n) for n in shape)].astype(code)
