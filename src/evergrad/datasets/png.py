"""PNG files, written and read with the standard library: 8 or 16 bits, grey or colour, with alpha.

Palettes, interlacing and depths below 8 bits are refused by name; every row is written unfiltered.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from evergrad import config
from evergrad.core.types import Array
from evergrad.utils.bounded_read import inflate, read_bounded, too_large

SIGNATURE = b"\x89PNG\r\n\x1a\n"
COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}  # by number of channels
CHANNELS = {colour: channels for channels, colour in COLOUR_TYPES.items()}


def encode(pixels: Array) -> bytes:
    """The bytes of a PNG file with (H, W) or (H, W, C) pixels of uint8 or uint16."""
    if pixels.dtype not in (np.uint8, np.uint16) or pixels.ndim not in (2, 3):
        raise TypeError(
            f"a PNG file holds (H, W) or (H, W, C) pixels of uint8 or uint16, not "
            f"{pixels.shape} of {pixels.dtype}"
        )
    height, width = pixels.shape[:2]
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    if channels not in COLOUR_TYPES or not height or not width:
        raise ValueError(f"a PNG file has 1 to 4 channels and some pixels, not {pixels.shape}")
    depth = 8 * pixels.itemsize
    header = struct.pack(">IIBBBBB", width, height, depth, COLOUR_TYPES[channels], 0, 0, 0)
    rows = pixels.astype(pixels.dtype.newbyteorder(">")).reshape(height, -1).view(np.uint8)
    filtered = np.insert(rows, 0, 0, axis=1)  # each row begins with the number of its filter
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(filtered.tobytes())), (b"IEND", b""))
    return SIGNATURE + b"".join(_chunk(kind, content) for kind, content in parts)


def _chunk(kind: bytes, content: bytes) -> bytes:
    body = kind + content
    return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))


_HOW = "pass most=, or set EVERGRAD_IMAGE_BYTES"


def read(path: str | Path, most: int | None = None) -> Array:
    """The pixels of a PNG file, (H, W) or (H, W, C), of at most ``most`` bytes (by default
    ``config.IMAGE_BYTES``)."""
    limit = config.IMAGE_BYTES if most is None else most
    return decode(read_bounded(path, limit, _HOW), str(path), limit)


def decode(content: bytes, name: str = "the image", most: int | None = None) -> Array:
    """The pixels in the bytes of a PNG file. The size in the header is compared with the limit
    before anything is unpacked."""
    if not content.startswith(SIGNATURE):
        raise ValueError(f"{name} is not a PNG file: it begins with {content[:8].hex(' ')}")
    header, packed = b"", []
    for kind, part in _chunks(content, name):
        if kind == b"IHDR":
            header = part
        elif kind == b"IDAT":
            packed.append(part)
    if len(header) != 13:
        raise ValueError(f"{name} is damaged: its header is missing")
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", header)
    if depth not in (8, 16) or colour not in CHANNELS or interlaced:
        raise ValueError(
            f"{name} has a palette, {depth} bits or interlacing; reading it needs Pillow: "
            "pip install pillow"
        )
    row_bytes = width * CHANNELS[colour] * depth // 8
    limit = config.IMAGE_BYTES if most is None else most
    if height * (row_bytes + 1) > limit:
        raise too_large(f"{name} ({width} x {height} pixels)", limit, _HOW)
    if not height or not width:
        raise ValueError(f"{name} is damaged: it has no pixels")
    rows = _unpacked(b"".join(packed), height, row_bytes, name)
    pixels = _unfiltered(rows, CHANNELS[colour] * depth // 8, name)
    pixels = pixels.view(np.uint8 if depth == 8 else np.dtype(">u2")).astype(f"u{depth // 8}")
    shape = (height, width) if colour == 0 else (height, width, CHANNELS[colour])
    return pixels.reshape(shape)


def _chunks(content: bytes, name: str) -> Iterator[tuple[bytes, bytes]]:
    place, kind = len(SIGNATURE), b""
    while kind != b"IEND":
        length = int.from_bytes(content[place : place + 4])
        kind, part = content[place + 4 : place + 8], content[place + 8 : place + 8 + length]
        place += 12 + length
        if place > len(content):
            raise ValueError(f"{name} is damaged: it ends before its last chunk does")
        if zlib.crc32(kind + part) != int.from_bytes(content[place - 4 : place]):
            raise ValueError(f"{name} is damaged: the sum of its chunk {kind!r} is wrong")
        yield kind, part


def _unpacked(packed: bytes, height: int, width: int, name: str) -> Array:
    """The rows as they are stored, each with the number of its filter first."""
    try:
        stored = inflate(packed, height * (width + 1))
    except zlib.error as error:
        raise ValueError(f"{name} is damaged: {error}") from error
    if len(stored) != height * (width + 1):
        raise ValueError(f"{name} is damaged: it holds {len(stored)} bytes of pixels")
    return np.frombuffer(stored, np.uint8).reshape(height, width + 1)


def _unfiltered(stored: Array, step: int, name: str) -> Array:
    """Undo the filters: every byte was stored as a difference to its left and upper ones."""
    rows = stored[:, 1:].copy()
    above = np.zeros_like(rows[0])
    for number, row in zip(stored[:, 0].tolist(), rows, strict=True):
        if number == 1:
            pixels = row.reshape(-1, step)
            np.add.accumulate(pixels, out=pixels)
        elif number == 2:
            row += above
        elif number in (3, 4):
            _undo_prediction(row, above, step, _average if number == 3 else _paeth)
        elif number:
            raise ValueError(f"{name} is damaged: there is no filter {number}")
        above = row
    return rows


def _undo_prediction(
    row: Array, above: Array, step: int, predict: Callable[[int, int, int], int]
) -> None:
    """Filters that predict a byte from its left, upper and upper left neighbours."""
    values, upper = row.tolist(), above.tolist()
    for i, value in enumerate(values):
        left, corner = (values[i - step], upper[i - step]) if i >= step else (0, 0)
        values[i] = (value + predict(left, upper[i], corner)) & 0xFF
    row[:] = values


def _average(left: int, up: int, corner: int) -> int:
    return (left + up) // 2


def _paeth(left: int, up: int, corner: int) -> int:
    """The neighbour nearest to left + up - corner."""
    estimate = left + up - corner
    return min((left, up, corner), key=lambda neighbour: abs(estimate - neighbour))
