"""Thousands of broken files: each is read or refused, with little memory and no code run."""

from __future__ import annotations

import gc
import io
import pickletools
import random
import struct
import sys
import threading
import time
import tracemalloc
import zlib
from collections import Counter, OrderedDict
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from file_tools import records, written

import evergrad
from evergrad import nn
from evergrad.errors import FileFormatError

COUNTS = {"bytes": 7000, "legacy": 5000, "instructions": 11000}
MOST_BYTES = 3 << 20
MOST_SECONDS = 10.0


def objects() -> list[Any]:
    x = evergrad.arange(24.0).reshape(4, 6)
    return [
        x,
        {"a": x[1], "b": x[:, 2:4], "n": [1, 2.5, None, True, "text", (1, 2, 3)]},
        nn.Linear(2, 3).state_dict(),
        x[:2].to_sparse(),
        [nn.Parameter(evergrad.ones(2)), evergrad.float16, evergrad.Size([1, 2]), b"abc", {4, 5}],
        OrderedDict(c=Counter("aab"), d=1 + 2j, e=bytearray(b"12"), f=evergrad.device("cpu")),
    ]


def loose_objects() -> list[Any]:
    """Such as only ``weights_only=False`` lets pass."""
    return [nn.Sequential(nn.Linear(1, 2), nn.ReLU()), SimpleNamespace(a=np.arange(3), b=range(4))]


# -- mutations ------------------------------------------------------------------------------------


def mutated(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """Bytes flipped, cut off, doubled, removed, or continued by another file."""
    kind = rng.randrange(6)
    at = rng.randrange(len(data))
    if kind == 0:
        return data[:at]
    if kind == 1:
        other = rng.choice(others)
        return data[:at] + other[rng.randrange(len(other)) :]
    if kind == 2:
        return data[:at] + data[at + rng.randrange(1, 9) :]
    if kind == 3:
        return data[:at] + rng.randbytes(rng.randrange(1, 9)) + data[at:]
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 9)):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def instructions(data: bytes) -> list[bytes]:
    """A pickle taken apart."""
    places = [place for _, _, place in pickletools.genops(data)]
    return [data[a:b] for a, b in zip(places, [*places[1:], len(data)], strict=True)]


HOSTILE = [
    b"cos\nsystem\n", b"cbuiltins\neval\n", b"cbuiltins\ngetattr\n", b"csubprocess\nPopen\n",
    b"cevergrad.io.loading\nload\n", b"cevergrad\nzeros\n", b"ctorch\nTensor\n",
    b"cantigravity\nx\n",
    b"ctorch._utils\n_rebuild_tensor_v3\n", b"ctorch._tensor\n_rebuild_from_type_v2\n",
    b"ctorch._utils\n_rebuild_sparse_tensor\n", b"ctorch.storage\nUntypedStorage\n",
    b"cnumpy._core.multiarray\n_reconstruct\n", b"cnumpy\nndarray\n", b"cnumpy\ndtype\n",
    b"cevergrad.nn.linear\nLinear\n", b"cbuiltins\nbytearray\n", b"ccollections\ndefaultdict\n",
    b"J\xff\xff\xff\x7f", b"J\xff\xff\xff\xff", b"\x8a\x08" + b"\xff" * 7 + b"\x7f", b"\x8a\x00",
    b"\x8b\xff\xff\xff\x7f", b"X\xff\xff\xff\x7f", b"\x8e" + b"\xff" * 8,
    b"G" + b"\x7f\xf8" + bytes(6),
    b"(", b"t", b"R", b"b", b"\x81", b"\x92", b"Q", b"u", b"s", b"e", b"a", b"0", b"1", b"2", b"}",
    b"]", b")", b"\x8f", b"\x90", b"\x91", b"\x93", b"\x94", b"\x95" + bytes(8), b"h\x00", b"h\x07",
    b"q\x03", b"r\xff\xff\xff\xff", b"N", b".",
]  # fmt: skip


def rearranged(parts: list[bytes], pool: list[bytes], rng: random.Random) -> bytes:
    """A pickle with a few of its instructions exchanged, removed, repeated or moved."""
    parts = list(parts)
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(parts))
        kind = rng.randrange(5)
        if kind == 0 and len(parts) > 1:
            del parts[at]
        elif kind == 1:
            parts.insert(at, rng.choice(pool))
        elif kind == 2:
            parts[at] = rng.choice(pool)
        elif kind == 3:
            parts[at:at] = parts[at : at + rng.randrange(1, 6)] * rng.randrange(1, 4)
        else:
            other = rng.randrange(len(parts))
            parts[at], parts[other] = parts[other], parts[at]
    return b"".join(parts)


def quick_archive(contents: dict[str, bytes]) -> bytes:
    """An archive with right checksums, made without ado."""
    body, directory = b"", b""
    for name, data in contents.items():
        path = b"archive/" + name.encode()
        crc, size = zlib.crc32(data), len(data)
        fields = struct.pack("<5H3L2H", 20, 0, 0, 0, 0, crc, size, size, len(path), 0)
        directory += b"PK\x01\x02" + struct.pack("<H", 20) + fields
        directory += struct.pack("<3H2L", 0, 0, 0, 0, len(body)) + path
        body += b"PK\x03\x04" + fields + path + data
    count = len(contents)
    place = struct.pack("<2L", len(directory), len(body))
    return (
        body + directory + b"PK\x05\x06" + struct.pack("<4H", 0, 0, count, count) + place + b"\0\0"
    )


def broken_bytes(rng: random.Random) -> Iterator[bytes]:
    files = [written(evergrad, obj).getvalue() for obj in [*objects(), *loose_objects()]]
    while True:
        yield mutated(rng.choice(files), files, rng)


def broken_legacy(rng: random.Random) -> Iterator[bytes]:
    files = [written(evergrad, obj, new=False).getvalue() for obj in [*objects(), *loose_objects()]]
    while True:
        yield mutated(rng.choice(files), files, rng)


def broken_instructions(rng: random.Random) -> Iterator[bytes]:
    whole = [
        records(written(evergrad, obj, pickle_protocol=protocol))
        for obj in [*objects(), *loose_objects()]
        for protocol in (2, 4)
    ]
    taken_apart = [instructions(contents["data.pkl"]) for contents in whole]
    pool = [*HOSTILE, *HOSTILE, *{part for parts in taken_apart for part in parts}]
    while True:
        i = rng.randrange(len(whole))
        yield quick_archive({**whole[i], "data.pkl": rearranged(taken_apart[i], pool, rng)})


# -- what must hold -------------------------------------------------------------------------------

FORBIDDEN = (
    "import", "exec", "compile", "open", "pickle.", "os.", "subprocess.", "socket.", "ctypes.",
    "shutil.", "tempfile.", "marshal.", "code.", "function.__new__", "object.__setattr__",
)  # fmt: skip


class Watch:
    """Records the audit events of its own thread while it is on: background threads of the engine
    may end a compile worker at any time."""

    def __init__(self) -> None:
        self.on = False
        self.thread = threading.get_ident()
        self.seen: list[tuple[str, Any]] = []
        sys.addaudithook(self._notice)

    def _notice(self, event: str, args: Any) -> None:
        if self.on and threading.get_ident() == self.thread and event.startswith(FORBIDDEN):
            self.seen.append((event, args))


WATCH = Watch()


def attempt(data: bytes, weights_only: bool) -> bool:
    """Load a broken file; gives whether it could be read."""
    file = io.BytesIO(data)
    WATCH.on = True
    try:
        evergrad.load(file, weights_only=weights_only)
    except RecursionError:
        raise
    except FileFormatError:
        return False
    except EOFError:
        assert not data
        return False
    except RuntimeError as error:
        assert "device" in str(error) or "location" in str(error), error
        return False
    finally:
        WATCH.on = False
    return True


def test_the_watch_sees() -> None:
    WATCH.on = True
    try:
        exec("1")
    finally:
        WATCH.on = False
    assert [event for event, _ in WATCH.seen] == ["compile", "exec"]
    WATCH.seen.clear()


@pytest.mark.parametrize(
    "kind, make",
    [
        ("bytes", broken_bytes),
        ("legacy", broken_legacy),
        ("instructions", broken_instructions),
    ],
)
def test_broken_files(kind: str, make: Any) -> None:
    rng = random.Random(kind)
    files = make(rng)
    for obj in [*objects(), *loose_objects()]:  # whatever is imported late is there now
        for new in (True, False):
            evergrad.load(written(evergrad, obj, new), weights_only=False)
    next(files)
    modules = set(sys.modules)
    read = 0
    for i in range(COUNTS[kind]):
        data = next(files)
        measured = i % 8 == 0  # counting every allocation takes long
        if measured:
            tracemalloc.start()
        begin = time.perf_counter()
        try:
            read += attempt(data, weights_only=bool(i % 2))
            peak = tracemalloc.get_traced_memory()[1] if measured else 0
        finally:
            tracemalloc.stop()
        assert peak < MOST_BYTES, data
        assert time.perf_counter() - begin < MOST_SECONDS, data
    assert WATCH.seen == []
    assert set(sys.modules) == modules
    assert 0 < read < COUNTS[kind] // 2  # most are refused, some are harmless
    gc.collect()
