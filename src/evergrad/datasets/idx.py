"""The idx format of the MNIST family: a magic number, the shape, then the elements."""

from __future__ import annotations

import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from evergrad.datasets.files import read_unpacked

# The third byte of the file names the type; numbers are stored with the high byte first.
TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: Path) -> np.ndarray[Any, Any]:
    """The array in an idx file, packed with gzip or not."""
    try:
        content = read_unpacked(path)
    except (EOFError, OSError, zlib.error) as error:
        raise RuntimeError(f"{path} is damaged: {error}. Fetch the file again.") from error
    return parse_idx(content, str(path))


def parse_idx(content: bytes, name: str = "the file") -> np.ndarray[Any, Any]:
    """The array that the bytes of an idx file describe."""
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in TYPES:
        raise RuntimeError(f"{name} is not an idx file: it begins with {content[:4].hex(' ')}")
    element, dimensions = np.dtype(TYPES[content[2]]), content[3]
    start = 4 + 4 * dimensions
    shape = tuple(np.frombuffer(content[4:start].ljust(start - 4, b"\0"), ">u4").tolist())
    expected = start + math.prod(shape) * element.itemsize
    if len(content) != expected:
        raise RuntimeError(
            f"{name} is damaged: an idx file of shape {shape} has {expected:,} bytes, this one "
            f"{len(content):,}. Fetch the file again."
        )
    array = np.frombuffer(content, element, offset=start).reshape(shape)
    return array.astype(element.newbyteorder("="))
