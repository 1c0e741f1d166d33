"""Files in memory, written and read by either library, and archives taken apart."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import evergrad

FORMATS = [True, False]  # the present format and the one before it


def written(ns: Any, obj: Any, new: bool = True, **options: Any) -> io.BytesIO:
    """What ``ns.save`` makes of an object."""
    buffer = io.BytesIO()
    ns.save(obj, buffer, _use_new_zipfile_serialization=new, **options)
    buffer.seek(0)
    return buffer


def reloaded(obj: Any, new: bool = True, **options: Any) -> Any:
    """An object saved and loaded by evergrad."""
    return evergrad.load(written(evergrad, obj, new), **options)


def records(buffer: io.BytesIO) -> dict[str, bytes]:
    """The records of an archive, by their names without the folder."""
    with zipfile.ZipFile(buffer) as archive:
        return {n.partition("/")[2]: archive.read(n) for n in archive.namelist()}


def archive_of(contents: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> io.BytesIO:
    """An archive with these records and right checksums."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in contents.items():
            archive.writestr(f"archive/{name}", data)
    buffer.seek(0)
    return buffer


def with_pickle(data: bytes, **storages: bytes) -> io.BytesIO:
    """An archive of one pickle and storages named ``s0``, ``s1``, ... in it by 0, 1, ..."""
    own = {f"data/{name.removeprefix('s')}": value for name, value in storages.items()}
    return archive_of({"data.pkl": data, **own, "version": b"3\n"})
