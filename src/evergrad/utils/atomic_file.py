"""Writing a file so that there is always a whole one: the former until the new one is on disk."""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

# How files are called that are being written, and that a killed process leaves behind.
SUFFIX = ".evergrad-part"
_LONGEST_STEM = 100
# A file being written is locked right after it is made; younger ones may not be locked yet.
_STALE_AFTER_SECONDS = 60.0


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of ``path`` when the block ends without an error.

    Otherwise what was there stays as it is, and nothing else is left.
    """
    target = os.path.realpath(path)
    directory = os.path.dirname(target)
    if not os.path.isdir(directory):
        raise RuntimeError(f"Parent directory {os.path.dirname(path) or '.'} does not exist.")
    if os.path.isdir(target):
        raise RuntimeError(f"invalid file name: {os.fspath(path)} is a directory.")
    if os.path.exists(target) and not os.path.isfile(target):
        with open(target, "wb") as device:  # a pipe or a device cannot be replaced
            yield device
        return
    remove_stale(target)
    temporary = f"{_prefix(target)}{secrets.token_hex(8)}{SUFFIX}"
    try:
        with open(temporary, "xb") as file:
            _lock(file.fileno())
            _keep_mode(temporary, target)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _sync_directory(directory)


def unwritable(path: str | os.PathLike[str]) -> str | None:
    """Why a file cannot be written there; ``None`` if it can."""
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    if os.path.isdir(target):
        return "it is a folder"
    if not os.path.isdir(folder):
        return f"there is no folder {os.path.dirname(path) or '.'}"
    if os.path.exists(target) and not os.access(target, os.W_OK):
        return "permission denied"
    if os.path.exists(target) and not os.path.isfile(target):
        return None  # a pipe or a device
    if not accepts_files(folder):
        return f"the folder {os.path.dirname(path) or '.'} is not writable"
    return None


def accepts_files(folder: str | os.PathLike[str]) -> bool:
    """Whether a file can be made in a folder. It is tried: permissions alone say nothing of a
    read-only or virtual file system, nor of what root may do."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def remove_stale(target: str) -> None:
    """Remove what processes left behind that were killed while they wrote this file."""
    prefix = _prefix(target)
    directory, start = os.path.split(prefix)
    for entry in os.scandir(directory):
        if not entry.name.startswith(start) or not entry.name.endswith(SUFFIX):
            continue
        with suppress(OSError):
            if time.time() - entry.stat().st_mtime > _STALE_AFTER_SECONDS and _is_unlocked(entry):
                os.unlink(entry.path)


def _prefix(target: str) -> str:
    directory, name = os.path.split(target)
    return os.path.join(directory, f".{name[:_LONGEST_STEM]}.")


def _keep_mode(temporary: str, target: str) -> None:
    with suppress(FileNotFoundError):
        os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))


try:
    import fcntl

    def _lock(handle: int) -> None:
        """Show that the file is being written. The lock ends with the process, however it ends."""
        with suppress(OSError):  # not every file system has locks
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _is_unlocked(entry: os.DirEntry[str]) -> bool:
        with open(entry.path, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return False
        return True

    def _sync_directory(directory: str) -> None:
        """Have the new name on disk too."""
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

except ImportError:  # not a POSIX system: an open file cannot be removed there anyway

    def _lock(handle: int) -> None:
        pass

    def _is_unlocked(entry: os.DirEntry[str]) -> bool:
        return True

    def _sync_directory(directory: str) -> None:
        pass
