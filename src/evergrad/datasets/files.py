"""Files of data sets: fetched over the network, checked against their sums, unpacked.

A file appears under its name only when it is whole and right: bytes are written beside it and moved
into place at the end, so that an interrupted download leaves nothing that looks like data.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import os
import secrets
import shutil
import sys
import tarfile
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

BLOCK = 1 << 18
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


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar archive into a folder: all of it or nothing."""
    temporary = Path(tempfile.mkdtemp(dir=folder, prefix=f".{archive.name}."))
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(temporary, filter="data")
        for entry in temporary.iterdir():
            _replace(entry, folder / entry.name)
    except tarfile.TarError as error:
        raise RuntimeError(f"{archive} cannot be unpacked: {error}") from error
    finally:
        shutil.rmtree(temporary)


def _replace(source: Path, target: Path) -> None:
    if target.is_dir():
        shutil.rmtree(target)
    os.replace(source, target)


def read_unpacked(path: Path) -> bytes:
    """The bytes of a file; one that ends in ``.gz`` is unpacked on the way."""
    content = path.read_bytes()
    return gzip.decompress(content) if path.suffix == ".gz" else content
