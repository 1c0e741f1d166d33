"""Archives as PyTorch reads them: records stored one after the other, aligned for mapping."""

from __future__ import annotations

import struct
import sys
import zipfile
from collections.abc import Iterable
from typing import Any

from evergrad.io.regions import Region

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
