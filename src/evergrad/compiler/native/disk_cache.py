"""Disk cache of object files and programs, shared by processes.

Each file begins with a magic word and a checksum, so that a damaged one is detected and rebuilt.
Files are written atomically by renaming. Without read or write access the cache is disabled; one
that exceeds its size limit evicts the least recently used files.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from functools import cache
from pathlib import Path

from evergrad import config

# Size limit of the cache; eviction goes down to half of it.
MOST_BYTES = 512 << 20


def folder() -> Path:
    """The directory of the cache."""
    return Path(config.KERNEL_CACHE)


def read(path: Path, kind: bytes) -> bytes | None:
    """The content of a file; ``None`` if it is missing or damaged (then it is removed)."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    head = len(kind) + 32
    if not data.startswith(kind) or hashlib.sha256(data[head:]).digest() != data[len(kind) : head]:
        remove(path)
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # least recently used order
    return data[head:]


def write(path: Path, kind: bytes, content: bytes) -> None:
    """Write a file atomically."""
    import tempfile  # start-up: only writers need it

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
def _prune_once(directory: Path) -> None:
    """Prune a directory before this process first writes to it."""
    prune(directory, MOST_BYTES)


def prune(directory: Path, most: int) -> None:
    """Evict the least recently used files of a directory that exceeds ``most`` bytes, down to half
    of that. Evicted content is rebuilt on demand."""
    files = []
    for path in directory.iterdir():
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
