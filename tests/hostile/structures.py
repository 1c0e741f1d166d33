"""Mutations that keep a file whole: lengths, checksums and syntax are right, what is said is wrong.

Flipped bytes seldom pass the first check of a format; these reach what stands behind it.
"""

from __future__ import annotations

import bz2
import gzip
import json
import random
import struct
import tarfile
import zlib
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

Mutation = Callable[[bytes, random.Random], bytes]

# -- values of JSON -----------------------------------------------------------------------------

DEEP = "[" * 50_000 + "]" * 50_000
HOSTILE_VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 7, 1 << 31, (1 << 31) - 1, 1 << 40, 1 << 62, 1 << 64,
    -(1 << 63), 10**400, 0.5, -0.0, 1e-320, 1e308, float("inf"), float("-inf"), float("nan"), "",
    "a", "0", "1e9", "\0", "../../etc/passwd", "/dev/zero", "os:system", "\ud800", "x" * 5000,
    [], {}, [[]], [None], {"": {}}, [1, 2, 3], {"a": [1]}, [0] * 300,
]  # fmt: skip


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values inside of a value, its own first."""
    yield at
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, (*at, key))


def changed_value(value: Any, rng: random.Random) -> Any:
    """A value of JSON of which one is replaced, removed, doubled, renamed or moved elsewhere."""
    found = list(places(value))
    path = rng.choice(found)
    if not path:
        return deepcopy(rng.choice(HOSTILE_VALUES)) if rng.random() < 0.1 else value
    holder = inside(value, path[:-1])
    key, kind = path[-1], rng.randrange(6)
    if kind < 3:
        holder[key] = deepcopy(rng.choice(HOSTILE_VALUES))
    elif kind == 3:
        del holder[key]
    elif kind == 4:
        holder[key] = deepcopy(inside(value, rng.choice(found)))
    elif isinstance(holder, dict):
        holder[rng.choice(["", "__class__", "type", *holder])] = holder.pop(key)
    else:
        holder *= rng.choice((2, 30))
    return value


def inside(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def changed_json(data: bytes, rng: random.Random) -> bytes:
    value = json.loads(data)
    for _ in range(rng.randrange(1, 4)):
        value = changed_value(value, rng)
    text = json.dumps(value)
    if rng.random() < 0.02:
        text = text.replace("null", DEEP, 1)
    return text.encode()


def changed_lines(data: bytes, rng: random.Random) -> bytes:
    """Of a file with a value in each line, those of one line."""
    lines = [line for line in data.split(b"\n") if line and len(line) < 10_000]
    at = rng.randrange(len(lines))
    lines[at] = changed_json(lines[at], rng)
    return b"\n".join(lines) + b"\n"


# -- binary formats -----------------------------------------------------------------------------


def changed_safetensors(data: bytes, rng: random.Random) -> bytes:
    """With a right length of the changed header."""
    size = int.from_bytes(data[:8], "little")
    header = changed_json(data[8 : 8 + size], rng)
    return len(header).to_bytes(8, "little") + header + data[8 + size :]


def changed_png(data: bytes, rng: random.Random) -> bytes:
    """Chunks changed, moved, doubled or removed, with right checksums; sometimes within the
    compressed rows."""
    chunks, at = [], 8
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        chunks.append((data[at + 4 : at + 8], bytearray(data[at + 8 : at + 8 + size])))
        at += size + 12
    kind, number = rng.randrange(5), rng.randrange(len(chunks))
    name, content = chunks[number]
    if kind == 0 and content:
        content[rng.randrange(len(content))] = rng.choice((0, 1, 2, 3, 4, 6, 8, 16, 127, 255))
    elif kind == 1:
        chunks.insert(rng.randrange(len(chunks) + 1), (name, content))
    elif kind == 2:
        del chunks[number]
    elif kind == 3 and name == b"IDAT":
        rows = bytearray(zlib.decompress(content))
        rows[rng.randrange(len(rows))] = rng.randrange(256)
        rows *= rng.choice((1, 1, 2, 10_000))
        chunks[number] = (name, bytearray(zlib.compress(bytes(rows))))
    else:
        chunks[number] = (rng.choice((b"PLTE", b"tRNS", b"zTXt", b"IEND", b"IHDR")), content)
    parts = [data[:8]]
    for name, content in chunks:
        crc = zlib.crc32(name + content)
        parts.append(struct.pack(">I", len(content)) + name + content + struct.pack(">I", crc))
    return b"".join(parts)


def changed_numbers(first: int) -> Mutation:
    """A number of the header is replaced by one at a border of its type."""

    def change(data: bytes, rng: random.Random) -> bytes:
        width = rng.choice((1, 4, 8))
        at = rng.randrange(first, max(first + 1, min(len(data), 80)))
        limit = 1 << 8 * width
        number = rng.choice((0, 1, 2, limit - 1, limit >> 1, (limit >> 1) - 1, limit >> 4))
        order = rng.choice(("little", "big"))
        return data[:at] + number.to_bytes(width, order) + data[at + width :]  # type: ignore[arg-type]

    return change


def changed_gzip(data: bytes, rng: random.Random) -> bytes:
    inner = changed_numbers(0)(gzip.decompress(data), rng)
    return gzip.compress(inner * rng.choice((1, 1, 200)), mtime=0)


NAMES = ("../out", "/tmp/out", "a/../../out", "a\0b", "", ".", "..", "x" * 300, "a/" * 200, "f0")
KINDS = (tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE,
         tarfile.DIRTYPE, tarfile.GNUTYPE_SPARSE, tarfile.XHDTYPE)  # fmt: skip


def changed_tar(data: bytes, rng: random.Random) -> bytes:
    """Members of other kinds, names, targets and sizes, with right checksums."""
    parts, kind = [], rng.choice((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT))
    for number in range(rng.randrange(1, 5)):
        info = tarfile.TarInfo(rng.choice((*NAMES, f"folder/f{number}")))
        info.type = rng.choice(KINDS)
        info.linkname = rng.choice((*NAMES, "folder/f0", "/etc/passwd"))
        info.mode = rng.choice((0o644, 0o7777, 0))
        content = rng.choice((b"", b"a" * 40, bytes(600)))
        info.size = rng.choice((len(content), 0, 1 << 33))
        parts += [info.tobuf(kind), content, bytes(-len(content) % 512)]
    packed: Callable[[bytes], bytes] = rng.choice((bytes, gzip.compress, bz2.compress))
    return packed(b"".join([*parts, bytes(1024)]))


def changed_toml(data: bytes, rng: random.Random) -> bytes:
    """A value of a line is replaced, or a line is doubled, moved or said of another table."""
    lines = data.decode().splitlines()
    at = rng.randrange(len(lines))
    name, is_value, _ = lines[at].partition(" = ")
    if is_value and rng.random() < 0.8:
        values = ("-1", "0", str(10**30), "1e400", "nan", "[]", "{}", '""', '"os:system"', "true",
                  "9" * 5000, "[" * 5000, "1979-05-27", '"../../x"')  # fmt: skip
        lines[at] = f"{name} = {rng.choice(values)}"
    else:
        lines.insert(rng.randrange(len(lines)), lines[at])
    return "\n".join(lines).encode()


def changed_table(data: bytes, rng: random.Random) -> bytes:
    """Of a table of numbers one cell."""
    cells = (b"1e999", b"-nan", b"0x1p3", b'"', b'""', b"\xff", b"\0", b"1_000", b"9" * 5000, b" ",
             "\u0661".encode(), b"1,,2", b"\r", b"=1+1", b"1e-999", b"+-1")  # fmt: skip
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    row = lines[at].split(b",")
    row[rng.randrange(len(row))] = rng.choice(cells)
    lines[at] = b",".join(row) * rng.choice((1, 1, 50))
    return b"\n".join(lines)


STRUCTURES: dict[str, Mutation] = {
    "png": changed_png, "idx": changed_numbers(0), "idx.gz": changed_gzip, "toml": changed_toml,
    "tar": changed_tar, "tokenizer": changed_json, "safetensors": changed_safetensors,
    "metrics": changed_lines, "vsla": changed_numbers(8), "csv": changed_table,
    "conversations": changed_lines, "preferences": changed_lines, "config.json": changed_json,
    "captions": changed_lines, "shards": changed_json, "tokenizer.json": changed_json,
    "tokenizer_config.json": changed_json,
}  # fmt: skip
