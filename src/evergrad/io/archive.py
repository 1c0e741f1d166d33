"""Sources of bytes with a known size, and a strict reader of zip archives as PyTorch writes them.

Entries are stored, never compressed. Every size is compared with the bytes that exist before it is
used; entries may neither overlap nor appear twice, so that what is loaded is never more than the
file.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from evergrad.core.tensor import Array
from evergrad.errors import FileFormatError

_NEEDED = ("read", "seek", "tell")


def is_path(f: object) -> bool:
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


LOCAL_SIGNATURE = b"PK\x03\x04"
_CENTRAL_SIGNATURE = b"PK\x01\x02"
_END_SIGNATURE = b"PK\x05\x06"
_END64_SIGNATURE = b"PK\x06\x06"
_LOCATOR64_SIGNATURE = b"PK\x06\x07"

# signature, 2 versions, flags, method, time, date, crc, 2 sizes, 3 lengths, disk, attributes, place
_CENTRAL = struct.Struct("<4s6H3L5H2L")
# signature, version, flags, method, time, date, crc, 2 sizes, 2 lengths
_LOCAL = struct.Struct("<4s5H3L2H")
# signature, 2 disks, 2 counts, size and place of the directory, length of the comment
_END = struct.Struct("<4s4H2LH")
# signature, length, 2 versions, 2 disks, 2 counts, size and place of the directory
_END64 = struct.Struct("<4sQ2H2L4Q")
# signature, disk, place of the end record, disks
_LOCATOR64 = struct.Struct("<4sLQL")

_IN_EXTRA = 0xFFFFFFFF
_EXTRA64 = 1
_ENCRYPTED = 1


class Entry(NamedTuple):
    """One record of the archive, as listed in the central directory."""

    name: str
    crc: int
    size: int
    header: int


class Directory(NamedTuple):
    """Where the central directory stands, and how many entries it has."""

    offset: int
    size: int
    entries: int


class Archive:
    """The records of an archive by name."""

    def __init__(self, source: Source) -> None:
        self._source = source
        directory = self._find_directory()
        self.entries: dict[str, Entry] = self._read_directory(directory)
        self._headers = sorted(entry.header for entry in self.entries.values())
        self._headers.append(directory.offset)
        if len(set(self._headers)) != len(self._headers) or max(self._headers) != directory.offset:
            raise self._corrupted("two records stand in one place")
        # PyTorch can be told to write no checksums; then every one of them is zero.
        self._has_checksums = any(entry.crc for entry in self.entries.values())

    # -- records ----------------------------------------------------------------------------

    def read(self, name: str) -> bytes:
        """A small record, whole."""
        entry = self._entry(name)
        data = self._source.read(self.offset(name), entry.size)
        self._check(entry, data)
        return data

    def array(self, name: str) -> Array:
        """A record as an array of bytes of its own."""
        entry = self._entry(name)
        array = self._source.array(self.offset(name), entry.size)
        self._check(entry, array.data)
        return array

    def size(self, name: str) -> int:
        return self._entry(name).size

    def offset(self, name: str) -> int:
        """Where the bytes of a record begin; they end before the next record."""
        entry = self._entry(name)
        header = _LOCAL.unpack(self._source.read(entry.header, _LOCAL.size))
        if header[0] != LOCAL_SIGNATURE:
            raise self._corrupted(f"there is no record at the place of {name!r}")
        name_length, extra_length = header[-2:]
        if self._source.read(entry.header + _LOCAL.size, name_length) != name.encode():
            raise self._corrupted(f"another record stands in the place of {name!r}")
        start = entry.header + _LOCAL.size + int(name_length) + int(extra_length)
        if start + entry.size > self._headers[bisect_right(self._headers, entry.header)]:
            raise self._corrupted(f"the record {name!r} reaches into the next one")
        return start

    def _entry(self, name: str) -> Entry:
        found = self.entries.get(name)
        if found is None:
            raise self._corrupted(f"it has no record {name!r}")
        return found

    def _check(self, entry: Entry, data: bytes | memoryview) -> None:
        if self._has_checksums and zlib.crc32(data) != entry.crc:
            raise self._corrupted(f"the checksum of {entry.name!r} is wrong")

    def _corrupted(self, what: str) -> FileFormatError:
        return FileFormatError(
            f"{self._source.name} is not a valid archive: {what}. The file is truncated or "
            "corrupted; get it again, or take an older copy."
        )

    # -- the central directory --------------------------------------------------------------

    def _find_directory(self) -> Directory:
        size = self._source.size
        tail_start = max(0, size - _END.size - 0xFFFF)
        tail = self._source.read(tail_start, size - tail_start)
        at = tail.rfind(_END_SIGNATURE, 0, len(tail) - _END.size + len(_END_SIGNATURE))
        if at < 0:
            raise self._corrupted("its directory is missing")
        end = _END.unpack_from(tail, at)
        place = tail_start + at
        directory = Directory(offset=end[6], size=end[5], entries=end[4])
        if place >= _LOCATOR64.size:
            directory = self._find_directory64(place - _LOCATOR64.size) or directory
        if directory.offset + directory.size > place:
            raise self._corrupted("its directory does not fit in")
        return directory

    def _find_directory64(self, place: int) -> Directory | None:
        locator = _LOCATOR64.unpack(self._source.read(place, _LOCATOR64.size))
        if locator[0] != _LOCATOR64_SIGNATURE:
            return None
        end = _END64.unpack(self._source.read(locator[2], _END64.size))
        if end[0] != _END64_SIGNATURE:
            raise self._corrupted("its 64-bit directory is missing")
        return Directory(offset=end[9], size=end[8], entries=end[7])

    def _read_directory(self, directory: Directory) -> dict[str, Entry]:
        if directory.entries * _CENTRAL.size > directory.size:
            raise self._corrupted("its directory is shorter than it says")
        data = self._source.read(directory.offset, directory.size)
        entries: dict[str, Entry] = {}
        at = 0
        for _ in range(directory.entries):
            entry, at = self._read_entry(data, at)
            if entry.name in entries:
                raise self._corrupted(f"it has two records {entry.name!r}")
            entries[entry.name] = entry
        return entries

    def _read_entry(self, data: bytes, at: int) -> tuple[Entry, int]:
        if at + _CENTRAL.size > len(data):
            raise self._corrupted("its directory ends too early")
        fields = _CENTRAL.unpack_from(data, at)
        signature, flags, method, crc = fields[0], fields[3], fields[4], fields[7]
        packed, size, name_length, extra_length, comment_length = fields[8:13]
        header = fields[16]
        if signature != _CENTRAL_SIGNATURE:
            raise self._corrupted("its directory is broken")
        name_start = at + _CENTRAL.size
        extra_start = name_start + name_length
        extra_end = extra_start + extra_length
        try:
            name = data[name_start:extra_start].decode()
        except UnicodeDecodeError:
            raise self._corrupted("the name of a record cannot be read") from None
        wide = self._wide_numbers(data[extra_start:extra_end])
        size, packed, header = (
            next(wide, -1) if n == _IN_EXTRA else n for n in (size, packed, header)
        )
        if method or flags & _ENCRYPTED or packed != size:
            raise FileFormatError(
                f"{self._source.name}: the record {name!r} is compressed or encrypted, which "
                "save() never does. Unpack it and pack it again without compression (zip -0)."
            )
        return Entry(name, crc, size, header), extra_end + comment_length

    def _wide_numbers(self, extra: bytes) -> Iterator[int]:
        """The 64-bit numbers of an entry that did not fit in its 32-bit fields."""
        at = 0
        while at + 4 <= len(extra):
            kind, length = struct.unpack_from("<2H", extra, at)
            if kind == _EXTRA64:
                block = extra[at + 4 : at + 4 + length]
                return iter(struct.unpack(f"<{len(block) // 8}Q", block[: len(block) // 8 * 8]))
            at += 4 + length
        return iter(())
