"""The idx format of the MNIST family: a magic number, the shape, then the elements."""

from __future__ import annotations

import io
import math
import zlib
from pathlib import Path

import numpy as np

from evergrad import config
from evergrad.core.types import Array
from evergrad.utils.bounded_read import open_unpacked, read_exactly, too_large

# The third byte of the file names the type; numbers are stored with the high byte first.
TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_MOST_DIMENSIONS = 64  # NumPy's limit


def read_idx(path: Path, most: int | None = None) -> Array:
    """The array in an idx file, packed with gzip or not, of at most ``most`` bytes (by default
    ``config.UNPACKED_BYTES``)."""
    try:
        with open_unpacked(path) as file:
            return _read(file, str(path), config.UNPACKED_BYTES if most is None else most)
    except (EOFError, OSError, zlib.error) as error:
        raise RuntimeError(f"{path} is damaged: {error}. Fetch the file again.") from error


def parse_idx(content: bytes, name: str = "the file") -> Array:
    """The array that the bytes of an idx file describe."""
    return _read(io.BytesIO(content), name, config.UNPACKED_BYTES)


def _read(file: object, name: str, most: int) -> Array:
    """The array of a stream: the size that its header gives is compared with the limit first, and
    no more is read than it says."""
    head = read_exactly(file, 4)
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in TYPES:
        raise RuntimeError(f"{name} is not an idx file: it begins with {head.hex(' ')}")
    element, dimensions = np.dtype(TYPES[head[2]]), head[3]
    extents = read_exactly(file, 4 * dimensions)
    shape = tuple(np.frombuffer(extents.ljust(4 * dimensions, b"\0"), ">u4").tolist())
    count = math.prod(shape) * element.itemsize
    if count > most:
        raise too_large(name, most, "pass most=, or set EVERGRAD_UNPACKED_BYTES")
    content = read_exactly(file, count + 1)
    if len(content) != count or len(extents) != 4 * dimensions or dimensions > _MOST_DIMENSIONS:
        raise RuntimeError(
            f"{name} is damaged: an idx file of shape {shape} has {count:,} bytes of elements, "
            f"this one {'more' if len(content) > count else 'less'}. Fetch the file again."
        )
    array = np.frombuffer(content, element).reshape(shape)
    return array.astype(element.newbyteorder("="))
