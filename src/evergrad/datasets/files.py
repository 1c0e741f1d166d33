"""Files of data sets: fetched over the network, checked against their sums, unpacked.

A file appears under its name only when it is whole and right: bytes are written beside it and moved
into place at the end, so that an interrupted download leaves nothing that looks like data.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import http.client
import io
import os
import secrets
import shutil
import sys
import tarfile
import tempfile
import urllib.request
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from evergrad import config
from evergrad.errors import FileTooLargeError
from evergrad.utils.bounded_read import too_large

BLOCK = 1 << 18
# The most bytes of a long name or an extended header in a tar archive.
HEADER_BYTES = 1 << 20
TIMEOUT = 30.0  # seconds without an answer


def md5_of(path: str | Path) -> str:
    """The MD5 sum of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def check_integrity(fpath: str | Path, md5: str | None = None) -> bool:
    """Whether a file exists and, if a sum is given, has it."""
    return os.path.isfile(fpath) and (md5 is None or md5_of(fpath) == md5)


@contextmanager
def written_beside(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of ``path`` when the block ends well, and is removed if not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(temporary, "xb") as file:
            yield file
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def download(urls: Sequence[str], path: Path, md5: str | None = None) -> None:
    """Fetch a file from the first address that gives it whole; nothing to do if it is there."""
    if check_integrity(path, md5):
        return
    failures = []
    for url in urls:
        try:
            _fetch(url, path, md5)
            return
        except (OSError, ValueError, http.client.HTTPException) as error:
            failures.append(f"  {url}: {error}")
    raise RuntimeError(
        f"could not download {path.name}:\n" + "\n".join(failures) + "\n"
        f"  fix: fetch the file where there is a network and put it at {path}"
    )


def _fetch(url: str, path: Path, md5: str | None) -> None:
    digest = hashlib.md5(usedforsecurity=False)
    with urllib.request.urlopen(url, timeout=TIMEOUT) as answer, written_beside(path) as file:
        total = int(answer.headers.get("Content-Length") or 0)
        done = 0
        while block := answer.read(BLOCK):
            file.write(block)
            digest.update(block)
            done += len(block)
            _show_progress(path.name, done, total)
        _end_progress()
        if done < total:
            raise ValueError(f"the connection ended after {done:,} of {total:,} bytes")
        if md5 is not None and digest.hexdigest() != md5:
            raise ValueError(f"the MD5 sum is {digest.hexdigest()} instead of {md5}")


def _show_progress(name: str, done: int, total: int) -> None:
    if sys.stderr.isatty():
        share = f"{done / total:4.0%} of {total / 2**20:.1f}" if total else f"{done / 2**20:.1f}"
        print(f"\r{name}: {share} MiB", end="", file=sys.stderr, flush=True)


def _end_progress() -> None:
    if sys.stderr.isatty():
        print(file=sys.stderr)


def unpack(archive: Path, folder: Path, most: int | None = None) -> None:
    """Unpack a tar archive of at most ``most`` bytes into a folder: all of it or nothing."""
    limit = config.UNPACKED_BYTES if most is None else most
    temporary = Path(tempfile.mkdtemp(dir=folder, prefix=f".{archive.name}."))
    try:
        with _open_tar(archive) as file, tarfile.open(fileobj=file, mode="r:") as tar:
            _check_total(tar, archive, limit)
            file.reads_headers = False
            tar.extractall(temporary, filter="data")
        for entry in temporary.iterdir():
            _replace(entry, folder / entry.name)
    except FileTooLargeError:
        raise
    # ``tarfile`` raises a KeyError for a link to no member, and follows links to one another.
    except (
        tarfile.TarError, EOFError, KeyError, RecursionError, ValueError, zlib.error,
    ) as error:  # fmt: skip
        raise RuntimeError(f"{archive} cannot be unpacked: {error}") from error
    finally:
        shutil.rmtree(temporary)


def _open_tar(archive: Path) -> _SmallReads:
    """The bytes of a plain tar archive, or of one packed with gzip or bzip2. The packing is read
    off the first bytes: ``tarfile`` would attempt every decompressor, and that of ``lzma``
    allocates the dictionary (up to 4 GiB) that any thirteen bytes claim."""
    with archive.open("rb") as file:
        magic = file.read(6)
    if magic.startswith(b"\x1f\x8b"):
        return _SmallReads(gzip.open(archive), archive)
    if magic.startswith(b"BZh"):
        return _SmallReads(bz2.open(archive), archive)
    if magic == b"\xfd7zXZ\x00":
        raise RuntimeError(f"{archive} is packed with xz; only gzip and bzip2 are unpacked.")
    return _SmallReads(archive.open("rb"), archive)


class _SmallReads(io.BufferedReader):
    """A stream that refuses to read much at one place while headers are read. Long names and
    extended headers, which ``tarfile`` reads whole before it returns the member, claim any size: in
    one read, or in chunks where the interpreter is newer. It takes the position after each header.
    Members are copied in small pieces."""

    def __init__(self, raw: Any, archive: Path) -> None:
        super().__init__(raw)
        self.archive = archive
        self.reads_headers = True
        self.since_position = 0

    def read(self, size: int | None = -1, /) -> bytes:
        before = self.since_position if self.reads_headers else 0
        if size is None or not 0 <= size <= HEADER_BYTES - before:
            raise too_large(f"a header of {self.archive}", HEADER_BYTES, "unpack it by hand")
        self.since_position += size
        return super().read(size)

    def tell(self) -> int:
        self.since_position = 0
        return super().tell()

    def seek(self, target: int, whence: int = 0, /) -> int:
        self.since_position = 0
        return super().seek(target, whence)


def _check_total(tar: tarfile.TarFile, archive: Path, most: int) -> None:
    """Raise before anything is written if the members are too large together; each also counts
    with the block that it takes in the archive."""
    total = 0
    for member in tar:
        total += member.size + tarfile.BLOCKSIZE
        if total > most:
            raise too_large(archive, most, "pass most=, or set EVERGRAD_UNPACKED_BYTES")


def _replace(source: Path, target: Path) -> None:
    if target.is_dir():
        shutil.rmtree(target)
    os.replace(source, target)
