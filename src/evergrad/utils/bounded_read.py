"""Reading with a limit: no more memory is taken than the limit allows, whatever a file claims.

The size of a file is no bound by itself: gzip expands a thousandfold, a sparse file has no disk
behind it, and ``/dev/zero`` has no end.
"""

from __future__ import annotations

import gzip
import json
import os
import stat
import zlib
from io import BufferedReader
from pathlib import Path
from typing import Any

from evergrad.errors import FileFormatError, FileTooLargeError

_BLOCK = 1 << 18


def too_large(name: object, most: int, how: str) -> FileTooLargeError:
    """The error for content beyond a limit; ``how`` is the way to raise it."""
    return FileTooLargeError(
        f"{name} has more than {most:,} bytes, the limit of its reader; nothing was read into "
        f"memory beyond that.\n  fix: if the size is right, {how}."
    )


def read_exactly(file: Any, count: int) -> bytes:
    """``count`` bytes of a stream, or all there are; memory grows with what arrives."""
    found = bytearray()
    while len(found) < count:
        part = file.read(min(_BLOCK, count - len(found)))
        if not part:
            break
        found += part
    return bytes(found)


def read_bounded(path: str | os.PathLike[str], most: int, how: str) -> bytes:
    """The bytes of a file of at most ``most``; larger ones raise :class:`FileTooLargeError`."""
    with open(path, "rb") as file:
        found = read_exactly(file, most + 1)
    if len(found) > most:
        raise too_large(path, most, how)
    return found


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """A regular file, opened for reading. A pipe or device in its place raises a
    :class:`FileFormatError`: reading it may wait forever or never end."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    file = os.fdopen(handle, "rb")
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return file
    file.close()
    kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or device"
    raise FileFormatError(f"{os.fspath(path)} is {kind}, not a regular file")


def read_regular(path: str | os.PathLike[str], most: int, how: str) -> bytes:
    """The bytes of a regular file of at most ``most``; a sparse file is refused by its size."""
    with open_regular(path) as file:
        is_small = os.fstat(file.fileno()).st_size <= most
        found = read_exactly(file, most + 1) if is_small else b""
    if not is_small or len(found) > most:
        raise too_large(path, most, how)
    return found


def read_json(path: str | os.PathLike[str], most: int, how: str) -> Any:
    """The value in a regular file of JSON of at most ``most`` bytes; damaged ones raise
    ``ValueError``."""
    return parse_json(read_regular(path, most, how), os.fspath(path))


def parse_json(text: str | bytes, name: str) -> Any:
    """The value of a JSON text; whatever is wrong with it raises ``ValueError``."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(f"{name} is nested too deeply") from None


def open_unpacked(path: Path) -> gzip.GzipFile | BufferedReader:
    """The bytes of a file as a stream; one that ends in ``.gz`` is unpacked on the way."""
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


def inflate(packed: bytes, expected: int) -> bytes:
    """Inflated zlib data; stops one byte after ``expected``, so a longer stream is detected."""
    stream = zlib.decompressobj()
    found = stream.decompress(packed, expected + 1)
    if len(found) <= expected and not stream.eof:
        raise zlib.error("incomplete or truncated stream")
    return found
