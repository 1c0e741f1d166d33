"""What is read from: a file or a file object, of which it is known how many bytes there are."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from evergrad.core.tensor import Array
from evergrad.errors import FileFormatError

_NEEDED = ("read", "seek", "tell")


def is_path(f: Any) -> bool:
    return isinstance(f, (str, os.PathLike))


class Source:
    """Bytes at known places. Nothing is allocated for bytes that are not there."""

    def __init__(self, file: Any, name: str) -> None:
        self.file = file
        self.name = name
        self.start: int = file.tell()
        self.size: int = file.seek(0, os.SEEK_END) - self.start
        file.seek(self.start)

    def read(self, offset: int, count: int) -> bytes:
        """Exactly ``count`` bytes from ``offset`` on."""
        self._require(offset, count)
        self.file.seek(self.start + offset)
        return self._exactly(count)

    def _exactly(self, count: int) -> bytes:
        data: bytes = self.file.read(count)
        while len(data) < count:  # raw files may give less than asked for
            more = self.file.read(count - len(data))
            if not more:
                raise self.truncated()
            data += more
        return data

    def array(self, offset: int, count: int) -> Array:
        """``count`` bytes as an array of their own."""
        self._require(offset, count)
        array = np.empty(count, np.uint8)
        self.fill(offset, array)
        return array

    def fill(self, offset: int, array: Array) -> None:
        """Read as many bytes as an array holds into it."""
        self._require(offset, array.nbytes)
        self.file.seek(self.start + offset)
        view = array.data
        if not hasattr(self.file, "readinto"):
            view[:] = self._exactly(len(view))
            return
        while len(view):
            got = self.file.readinto(view)
            if not got:
                raise self.truncated()
            view = view[got:]

    def left(self) -> int:
        """How many bytes follow the file's position."""
        position: int = self.file.tell()
        return self.start + self.size - position

    def mapped(self) -> Array:
        """The whole file as memory: read when it is looked at, private when it is written."""
        return np.frombuffer(mmap.mmap(self.file.fileno(), 0, access=mmap.ACCESS_COPY), np.uint8)

    def truncated(self) -> FileFormatError:
        return FileFormatError(
            f"{self.name} ends before its contents do: it is truncated or corrupted. Get the file "
            "again, or take an older copy."
        )

    def _require(self, offset: int, count: int) -> None:
        if offset < 0 or count < 0 or offset + count > self.size:
            raise self.truncated()


@contextmanager
def opened(f: Any) -> Iterator[Source]:
    """The source behind a path or a file object, which stays open."""
    if is_path(f):
        with open(f, "rb") as file:
            yield Source(file, os.fspath(f))
        return
    missing = [name for name in _NEEDED if not hasattr(f, name)]
    if missing:
        raise AttributeError(
            f"'{type(f).__name__}' object has no attribute '{missing[0]}'. You can only load from "
            "a path or from a file that is seekable. Please pre-load the data into a buffer like "
            "io.BytesIO and try to load from it instead."
        )
    yield Source(f, "the file")
