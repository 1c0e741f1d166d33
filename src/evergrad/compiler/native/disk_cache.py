"""A folder of files that several processes share: object code, and programs made of it.

Each file begins with a word that tells its kind and a checksum, so that a damaged one is noticed
and made again. Files appear by renaming. A folder that cannot be read or written is done without;
one that has grown large loses the files that were not used for the longest time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from functools import cache
from pathlib import Path

from evergrad import config

# When the files of a folder have more bytes than this, the oldest go until it is half as many.
MOST_BYTES = 512 << 20


def folder() -> Path:
    """Where files are kept between processes."""
    return Path(config.KERNEL_CACHE)


def read(path: Path, kind: bytes) -> bytes | None:
    """What a file holds; ``None`` if there is none, or if it is damaged (then it is removed)."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    head = len(kind) + 32
    if not data.startswith(kind) or hashlib.sha256(data[head:]).digest() != data[len(kind) : head]:
        remove(path)
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # it was used now
    return data[head:]


def write(path: Path, kind: bytes, content: bytes) -> None:
    """Keep a file, whole or not at all."""
    import tempfile  # much comes with it that those who only read do not need

    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        _prune_once(path.parent)
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(kind + hashlib.sha256(content).digest() + content)
            os.replace(name, path)
        except OSError:
            os.unlink(name)
            raise


def remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


@cache
def _prune_once(place: Path) -> None:
    """Prune a folder before this process first writes to it."""
    prune(place, MOST_BYTES)


def prune(place: Path, most: int) -> None:
    """Remove the files used least lately, if there are more than ``most`` bytes, until half as
    many are left. What a program misses it makes again."""
    files = []
    for path in place.iterdir():
        with contextlib.suppress(OSError):  # another process may have removed it
            found = path.stat()
            files.append((found.st_mtime_ns, found.st_size, path))
    left = sum(size for _, size, _ in files)
    if left <= most:
        return
    for _, size, path in sorted(files):
        if left <= most // 2:
            break
        remove(path)
        left -= size
