"""Disk cache of object files and programs, shared by the processes of one user.

What is read here is executed, so the cache is an absolute folder that no other user can write to,
or there is none: of mode 0700 and owned by the user, with regular files of the user alone. Each
file begins with a magic word and a MAC over its name and content, by a key of the user beside the
folder (``kernels.key``, mode 0600): a file that is damaged, renamed or brought from elsewhere is
removed and made again. Files are written atomically by renaming. A cache that exceeds its size
limit evicts the least recently used files.

Nothing is kept in this process between calls: threads and forked processes need no lock but to make
the key.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from evergrad import config

if sys.platform != "win32":
    import fcntl

# Size limit of the cache, and of a file in it; eviction goes down to half of it.
MOST_BYTES = 512 << 20

_KEY_BYTES = 32
_DIGEST = "sha256"
_MAC_BYTES = 32
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_FILE_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_FOLDER_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_DIRECTORY", 0)


class UnsafeCacheError(OSError):
    """A folder, key or file that another user may have written."""


def folder() -> Path | None:
    """The directory of the cache; ``None`` if there is none, as without an absolute path."""
    path = config.KERNEL_CACHE
    return Path(path) if path and os.path.isabs(path) and hasattr(os, "geteuid") else None


def path_of(name: str) -> Path | None:
    """The place of a file in the cache."""
    found = folder()
    return None if found is None else found / name


def problem() -> str | None:
    """Why there is no cache; ``None`` if it can be used."""
    path = folder()
    if path is None:
        return "there is no absolute path for it: set HOME or EVERGRAD_KERNEL_CACHE"
    try:
        with _opened(path, make=True) as directory:
            _key(path, directory)
    except OSError as error:
        return str(error)
    return None


def exists(path: Path | None) -> bool:
    """Whether a file is there; it may still be damaged."""
    return path is not None and os.path.lexists(path)


def read(path: Path | None, kind: bytes) -> bytes | None:
    """The content of a file; ``None`` if it is missing, damaged or not the user's (then it is
    removed)."""
    if path is None:
        return None
    try:
        with _opened(path.parent) as directory:
            key = _key(path.parent)
            try:
                data = _file_content(path.name, directory)
            except UnsafeCacheError:
                data = b""
            head = len(kind) + _MAC_BYTES
            content = data[head:]
            mac = _mac(key, kind, path.name, content)
            if data.startswith(kind) and hmac.compare_digest(mac, data[len(kind) : head]):
                with contextlib.suppress(OSError):
                    os.utime(path.name, dir_fd=directory)  # least recently used order
                return content
            os.unlink(path.name, dir_fd=directory)
    except OSError:
        pass
    return None


def write(path: Path | None, kind: bytes, content: bytes) -> None:
    """Write a file atomically, if the cache can be used."""
    if path is None:
        return
    with contextlib.suppress(OSError), _opened(path.parent, make=True) as directory:
        key = _key(path.parent, directory)
        _prune_once(path.parent)
        name = _temporary_file(directory, kind + _mac(key, kind, path.name, content) + content)
        try:
            os.replace(name, path.name, src_dir_fd=directory, dst_dir_fd=directory)
        except OSError:
            os.unlink(name, dir_fd=directory)
            raise


def remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _mac(key: bytes, kind: bytes, name: str, content: bytes) -> bytes:
    made = hmac.new(key, kind + name.encode() + b"\0", _DIGEST)
    made.update(content)
    return made.digest()


# -- the folder, the key and files ----------------------------------------------------------------


@contextlib.contextmanager
def _opened(path: Path, make: bool = False) -> Iterator[int]:
    """The directory, opened if it is safe: no link, the user's, and writable by no other."""
    if make:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
    directory = os.open(path, _FOLDER_FLAGS)
    try:
        found = os.fstat(directory)
        if found.st_uid != os.geteuid() or found.st_mode & _OTHERS_WRITE:
            raise UnsafeCacheError(f"{path} is not the user's alone (chmod 700 and chown it)")
        if stat.S_IMODE(found.st_mode) != 0o700:
            os.fchmod(directory, 0o700)
        yield directory
    finally:
        os.close(directory)


def _file_content(name: str, directory: int) -> bytes:
    """The content of a regular file of the user that no other user can write to."""
    handle = os.open(name, os.O_RDONLY | _FILE_FLAGS, dir_fd=directory)
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        is_safe = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
        if not is_safe or found.st_nlink != 1 or found.st_mode & _OTHERS_WRITE:
            raise UnsafeCacheError(f"{name} is not a file of the user's alone")
        if found.st_size > MOST_BYTES:
            raise UnsafeCacheError(f"{name} is larger than the whole cache")
        return file.read(found.st_size + 1)


def _temporary_file(directory: int, content: bytes) -> str:
    """The name of a new file with this content."""
    name = f"{secrets.token_hex(8)}.tmp"
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=directory)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
    except OSError:
        os.unlink(name, dir_fd=directory)
        raise
    return name


def _key(path: Path, maker: int | None = None) -> bytes:
    """The key of the folder, from the file beside it. With the opened folder as ``maker``, a key
    that is missing, damaged or has been readable by others is made again, and with it everything
    that it had signed. Makers exclude each other: none removes a key that another has just made."""
    place = path.with_name(f"{path.name}.key")
    try:
        return _read_key(place)
    except OSError:
        if maker is None:
            raise
    with _locked(maker):
        try:
            return _read_key(place)
        except FileNotFoundError:
            pass
        except OSError:
            os.unlink(place)
        _make_key(place)
        return _read_key(place)


@contextlib.contextmanager
def _locked(directory: int) -> Iterator[None]:
    """Exclude other processes and threads that have opened the directory and want it too. On a
    file system without locks nothing is excluded."""
    with contextlib.suppress(OSError):
        fcntl.flock(directory, fcntl.LOCK_EX)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(directory, fcntl.LOCK_UN)


def _read_key(place: Path) -> bytes:
    handle = os.open(place, os.O_RDONLY | _FILE_FLAGS)
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        is_own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
        key = file.read(_KEY_BYTES + 1) if is_own else b""
    if len(key) != _KEY_BYTES or stat.S_IMODE(found.st_mode) & 0o077:
        raise UnsafeCacheError(f"{place} is no key of the user's alone")
    return key


def _make_key(place: Path) -> None:
    """Make a key, unless another process has: the first to give it its name has made it."""
    waiting = place.with_name(f".{place.name}.{secrets.token_hex(8)}")
    handle = os.open(waiting, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
        try:
            os.link(waiting, place)
        except FileExistsError:
            pass
        except OSError:  # a file system without links: the last one wins
            os.replace(waiting, place)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(waiting)


# -- eviction -------------------------------------------------------------------------------------


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
            found = path.lstat()
            files.append((found.st_mtime_ns, found.st_size, path))
    left = sum(size for _, size, _ in files)
    if left <= most:
        return
    for _, size, path in sorted(files):
        if left <= most // 2:
            break
        remove(path)
        left -= size
