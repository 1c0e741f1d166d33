"""Bombs: no reader takes more memory than its limit, and every limit can be raised."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evergrad import config
from evergrad.datasets import files, png
from evergrad.datasets.idx import parse_idx, read_idx
from evergrad.datasets.text import read_text
from evergrad.errors import FileFormatError, FileTooLargeError
from evergrad.tokenizers import BPETokenizer, tokenizer_from_dict
from evergrad.train.config import ConfigError, read_config
from evergrad.train.records import read_run

MEGABYTE = 1 << 20


@pytest.fixture
def peak() -> Iterator[Callable[[], int]]:
    """The peak of Python's memory since the test began."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


def zeros_gz(path: Path, head: bytes, count: int) -> Path:
    """A gzip file of a head and many zeros, a thousandth of their size."""
    with gzip.open(path, "wb") as file:
        file.write(head)
        for _ in range(count // MEGABYTE):
            file.write(bytes(MEGABYTE))
    return path


def image(width: int, height: int, content: bytes) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", content), (b"IEND", b""))
    return png.SIGNATURE + b"".join(png._chunk(kind, part) for kind, part in parts)


# -- PNG ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(2**31, 2**31), (2**32 - 1, 1), (1, 2**32 - 1), (30000, 30000)])
def test_png_size_is_compared_with_the_limit_first(
    size: tuple[int, int], peak: Callable[[], int]
) -> None:
    content = image(*size, zlib.compress(bytes(100)))
    with pytest.raises(FileTooLargeError, match="EVERGRAD_IMAGE_BYTES"):
        png.decode(content)
    assert peak() < MEGABYTE


def test_png_whose_data_is_larger_than_its_header_says(peak: Callable[[], int]) -> None:
    content = image(4, 4, zlib.compress(bytes(200 * MEGABYTE), 9))
    tracemalloc.reset_peak()
    with pytest.raises(ValueError, match="damaged"):
        png.decode(content)
    assert peak() < 4 * MEGABYTE


def test_png_limit_can_be_raised(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(png.encode(np.zeros((40, 40), np.uint8)))
    monkeypatch.setattr(config, "IMAGE_BYTES", 100)
    with pytest.raises(FileTooLargeError):
        png.read(path)
    assert png.read(path, most=2000).shape == (40, 40)
    monkeypatch.setattr(config, "IMAGE_BYTES", 2000)
    assert png.read(path).shape == (40, 40)


def test_png_of_many_chunks_takes_linear_time() -> None:
    packed = zlib.compress(bytes(4 * 5))
    header = struct.pack(">IIBBBBB", 4, 4, 8, 0, 0, 0, 0)
    chunks = [png._chunk(b"IHDR", header), png._chunk(b"IDAT", packed)]
    chunks += [png._chunk(b"IDAT", b"")] * 20000 + [png._chunk(b"IEND", b"")]
    assert png.decode(png.SIGNATURE + b"".join(chunks)).shape == (4, 4)


# -- idx ------------------------------------------------------------------------------------------


def idx_head(*shape: int) -> bytes:
    return struct.pack(">HBB", 0, 8, len(shape)) + struct.pack(f">{len(shape)}I", *shape)


def test_idx_bomb(tmp_path: Path, peak: Callable[[], int]) -> None:
    path = zeros_gz(tmp_path / "a-idx1-ubyte.gz", idx_head(10), 300 * MEGABYTE)
    tracemalloc.reset_peak()
    with pytest.raises(RuntimeError, match="damaged"):
        read_idx(path)
    assert peak() < 4 * MEGABYTE


@pytest.mark.parametrize("shape", [(2**32 - 1,) * 3, (2**32 - 1, 2), (9,) * 255])
def test_idx_size_is_compared_with_the_limit_first(
    shape: tuple[int, ...], peak: Callable[[], int]
) -> None:
    with pytest.raises(FileTooLargeError, match="EVERGRAD_UNPACKED_BYTES"):
        parse_idx(idx_head(*shape))
    assert peak() < MEGABYTE


def test_idx_of_more_dimensions_than_arrays_have() -> None:
    with pytest.raises(RuntimeError, match="damaged"):
        parse_idx(idx_head(*(1,) * 70) + b"a")


def test_idx_that_claims_more_than_it_has(peak: Callable[[], int]) -> None:
    with pytest.raises(RuntimeError, match="damaged"):
        parse_idx(idx_head(1 << 31) + b"abc")
    assert peak() < MEGABYTE


def test_idx_limit_can_be_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = zeros_gz(tmp_path / "a-idx1-ubyte.gz", idx_head(MEGABYTE), MEGABYTE)
    monkeypatch.setattr(config, "UNPACKED_BYTES", 1000)
    with pytest.raises(FileTooLargeError):
        read_idx(path)
    assert read_idx(path, most=MEGABYTE).shape == (MEGABYTE,)


# -- archives and texts ---------------------------------------------------------------------------


def tar_with(path: Path, *sizes: int) -> Path:
    """A tar archive whose headers give these sizes, with no content behind them."""
    with path.open("wb") as file:
        for number, size in enumerate(sizes):
            info = tarfile.TarInfo(f"f{number}")
            info.size = size
            file.write(info.tobuf())
    return path


def test_tar_bomb_writes_nothing(tmp_path: Path) -> None:
    archive = tmp_path / "bomb.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for number in range(20):
            info = tarfile.TarInfo(f"f{number}")
            info.size = MEGABYTE
            tar.addfile(info, io.BytesIO(bytes(MEGABYTE)))
    target = tmp_path / "out"
    target.mkdir()
    with pytest.raises(FileTooLargeError, match="EVERGRAD_UNPACKED_BYTES"):
        files.unpack(archive, target, most=10 * MEGABYTE)
    assert list(target.iterdir()) == []
    files.unpack(archive, target, most=30 * MEGABYTE)
    assert len(list(target.iterdir())) == 20


def test_tar_of_claimed_sizes(tmp_path: Path) -> None:
    archive = tar_with(tmp_path / "a.tar", 1 << 40)
    with pytest.raises(FileFormatError):
        files.unpack(archive, tmp_path)


def test_tar_of_many_empty_files(tmp_path: Path) -> None:
    archive = tar_with(tmp_path / "a.tar", *[0] * 5000)
    with pytest.raises(FileTooLargeError):
        files.unpack(archive, tmp_path, most=MEGABYTE)


@pytest.mark.parametrize("dictionary", [1 << 31, (1 << 32) - 1, 3 << 29])
def test_tar_whose_first_bytes_claim_an_lzma_dictionary(
    dictionary: int, tmp_path: Path, peak: Callable[[], int]
) -> None:
    """Found by the hostile suite: a file of zeros was taken for the header of an old lzma stream,
    whose decoder allocates the dictionary that the header claims."""
    archive = tmp_path / "a.tar"
    archive.write_bytes(bytes([0x5D]) + struct.pack("<IQ", dictionary, 40) + bytes(10240))
    with pytest.raises(RuntimeError, match="cannot be unpacked"):
        files.unpack(archive, tmp_path)
    assert peak() < 4 * MEGABYTE


def test_tar_packed_with_xz_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar.xz"
    with tarfile.open(archive, "w:xz") as tar:
        tar.addfile(tarfile.TarInfo("a"))
    with pytest.raises(RuntimeError, match="only gzip and bzip2"):
        files.unpack(archive, tmp_path)


@pytest.mark.parametrize("packing", ["", "gz", "bz2"])
def test_packings_of_tar(packing: str, tmp_path: Path) -> None:
    archive = tmp_path / "a"
    with tarfile.open(archive, f"w:{packing}") as tar:  # type: ignore[call-overload]
        info = tarfile.TarInfo(f"{'n' * 120}/a")  # a long name has a header of its own
        info.size = 100
        tar.addfile(info, io.BytesIO(bytes(100)))
    target = tmp_path / "out"
    target.mkdir()
    files.unpack(archive, target)
    assert [path.stat().st_size for path in target.rglob("a")] == [100]


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_tar_headers_are_read_in_bounds(
    kind: bytes, tmp_path: Path, peak: Callable[[], int]
) -> None:
    """``tarfile`` reads names and extended headers whole before it returns their member."""
    info = tarfile.TarInfo("a")
    info.type, info.size = kind, 64 * MEGABYTE
    archive = zeros_gz(tmp_path / "a.tar.gz", info.tobuf(), 64 * MEGABYTE)
    with pytest.raises(FileTooLargeError):
        files.unpack(archive, tmp_path)
    assert peak() < 8 * MEGABYTE


def test_tar_of_many_members_and_long_names(tmp_path: Path) -> None:
    """What is bounded is one header: not the members, nor all names together."""
    archive = tmp_path / "a.tar.gz"
    names = [f"{n}/{'long name ' * 12}/{n}" for n in range(1500)]
    names += [f"file {n}" for n in range(3000)]
    with tarfile.open(archive, "w:gz") as tar:
        for name in names:
            tar.addfile(tarfile.TarInfo(name))
        info = tarfile.TarInfo("large")
        info.size = 3 * MEGABYTE
        tar.addfile(info, io.BytesIO(bytes(info.size)))
    target = tmp_path / "out"
    target.mkdir()
    files.unpack(archive, target)
    assert sum(path.is_file() for path in target.rglob("*")) == len(names) + 1


def test_tar_with_a_broken_sparse_map(tmp_path: Path) -> None:
    """Its numbers are no numbers, which ``tarfile`` says with a ValueError."""
    archive = tmp_path / "a.tar"
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("a")
        info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
        info.size = 512
        tar.addfile(info, io.BytesIO(b"no number" + bytes(503)))
    with pytest.raises(RuntimeError, match="cannot be unpacked"):
        files.unpack(archive, tmp_path)


@pytest.mark.parametrize("target", ["a", "b", "none"])
def test_tar_with_links_to_no_file(target: str, tmp_path: Path) -> None:
    """``tarfile`` raises a KeyError for a link to itself, to a later one and to no member."""
    archive = tmp_path / "a.tar"
    with tarfile.open(archive, "w") as tar:
        for name, linked in (("a", target), ("b", "a")):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.LNKTYPE, linked
            tar.addfile(info)
    with pytest.raises(RuntimeError, match="cannot be unpacked"):
        files.unpack(archive, tmp_path)
    assert list(tmp_path.iterdir()) == [archive]


def test_endless_and_sparse_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "UNPACKED_BYTES", MEGABYTE)
    path = tmp_path / "a.txt"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a terabyte without a block on disk
    with pytest.raises(FileTooLargeError):
        read_text(path)


# -- configurations, metrics and tokenizers -------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 8000, "a." * 50_000 + "b = 1", "steps = " + "9" * 8000,
        "a = '" + "x" * 2**21, "optimizer.betas = 7", "optimizer.betas = 0.5",
        "optimizer.lr = 1" + "0" * 400, "steps = '" + "9" * 8000 + "'",
    ],
)  # fmt: skip
def test_toml_bombs(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.toml"
    path.write_text(text)
    with pytest.raises(ConfigError):
        read_config(path)


def test_toml_of_a_terabyte(tmp_path: Path, peak: Callable[[], int]) -> None:
    path = tmp_path / "a.toml"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ConfigError, match="EVERGRAD_CONFIG_BYTES"):
        read_config(path)
    assert peak() < 8 * MEGABYTE


def test_records_of_a_run_that_are_bombs(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("a = " + "[" * 8000)
    (tmp_path / "metrics.jsonl").write_text("[" * 200_000 + '\n{"step": 1, "loss": 1.0}\n')
    (tmp_path / "memory.json").write_text("[" * 200_000)
    run = read_run(tmp_path)
    assert len(run.problems) == 3 and len(run.steps) == 1


@pytest.mark.parametrize(
    "state",
    [
        None, [], {}, {"kind": []}, {"kind": "bpe"}, {"kind": "bpe", "json": 3},
        {"kind": "bpe", "json": "[" * 100_000}, {"kind": "bpe", "json": "{}"},
        {"kind": "bpe", "json": '{"model": {"vocab": {"a": 4294967295}, "merges": []}}'},
        {"kind": "bpe", "json": '{"model": {"vocab": {"a": 0}, "merges": [["a", "b"]]}}'},
        {"kind": "bpe", "json": '{"model": {"vocab": {"a": 0}, "merges": ["a"]}}'},
        {"kind": "bpe", "json": '{"model": {"vocab": {"a": 0, "b": 0}, "merges": []}}'},
        {"kind": "bpe", "json": '{"model": {"vocab": [], "merges": []}}'},
        {"kind": "char"}, {"kind": "char", "characters": ""}, {"kind": "char", "characters": 7},
        {"kind": "char", "characters": ["ab", "c"]},
    ],
)  # fmt: skip
def test_damaged_tokenizers(state: Any) -> None:
    with pytest.raises(ValueError):
        tokenizer_from_dict(state)


def test_tokenizer_limit_can_be_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    state = {"kind": "char", "characters": "abc" * 1000}
    monkeypatch.setattr(config, "TOKENIZER_BYTES", 1000)
    with pytest.raises(FileTooLargeError, match="EVERGRAD_TOKENIZER_BYTES"):
        tokenizer_from_dict(state)
    monkeypatch.setattr(config, "TOKENIZER_BYTES", 3000)
    assert len(tokenizer_from_dict(state)) == 3


def test_a_stored_tokenizer_brings_no_expressions() -> None:
    """Of the package's format only the vocabulary and the merges are used."""
    pytest.importorskip("tokenizers")
    trained = BPETokenizer.train("the quick brown fox " * 20, 300)
    state = trained.to_dict()
    stored = json.loads(state["json"])
    stored["pre_tokenizer"] = {
        "type": "Split", "pattern": {"Regex": "(a*)*b"}, "behavior": "Removed", "invert": True,
    }  # fmt: skip
    stored["normalizer"] = {"type": "Replace", "pattern": {"String": "fox"}, "content": "x" * 99}
    again = tokenizer_from_dict({"kind": "bpe", "json": json.dumps(stored)})
    text = "the quick fox jumps ünder 東京"
    assert again.encode(text) == trained.encode(text)
    assert again.decode(again.encode(text)) == text
