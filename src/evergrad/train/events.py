"""TensorBoard's event files, written directly: a failing disk is noticed here and ends no run.

A file is a sequence of records (length, checksum, data, checksum), each a message in the encoding
of protocol buffers. Only the few messages a training needs are known here.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from evergrad.train.packages import package

_STRING_TYPE = 7  # of a tensor's elements
_SESSION_STARTS = 1


class EventLog:
    """Curves, pictures and texts of a run. The first failure to write ends it: ``problem``."""

    def __init__(self, folder: Path, first_step: int) -> None:
        """What former starts wrote for ``first_step`` and later is to be forgotten."""
        self.problem: OSError | None = None
        self._file: BinaryIO | None = None
        name = f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}.{os.getpid()}"
        try:
            folder.mkdir(exist_ok=True)
            self._file = (folder / name).open("wb")
        except OSError as error:
            self.problem = error
        self._write(0, _text(3, "brain.Event:2"))
        self._write(first_step, _message(7, _number(1, _SESSION_STARTS)))

    def scalars(self, step: int, values: dict[str, float]) -> None:
        """Points of curves."""
        for name, value in values.items():
            self._summary(step, name, _key(2, 5) + struct.pack("<f", value))

    def text(self, step: int, name: str, text: str) -> None:
        """A text, shown as it is."""
        shape = _message(2, _message(2, _number(1, 1)))
        indented = "".join(f"    {line}\n" for line in text.splitlines())  # Markdown for "as it is"
        tensor = _message(8, _number(1, _STRING_TYPE) + shape + _text(8, indented))
        self._summary(step, name, tensor + _message(9, _message(1, _text(1, "text"))))

    def image(self, step: int, name: str, image: Any) -> None:
        """A picture, (height, width, 3) of uint8."""
        encoded = BytesIO()
        package("PIL.Image").fromarray(image).save(encoded, "png")
        height, width, colours = image.shape
        sizes = _number(1, height) + _number(2, width) + _number(3, colours)
        self._summary(step, name, _message(4, sizes + _message(4, encoded.getvalue())))

    def flush(self) -> None:
        """Hand everything so far to the system."""
        self._attempt(b"", flush=True)

    def close(self) -> None:
        """End the file."""
        self.flush()
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                self.problem = error

    def _summary(self, step: int, name: str, value: bytes) -> None:
        self._write(step, _message(5, _message(1, _text(1, name) + value)))

    def _write(self, step: int, content: bytes) -> None:
        now = _key(1, 1) + struct.pack("<d", time.time())
        self._attempt(_record(now + _number(2, step) + content))

    def _attempt(self, data: bytes, flush: bool = False) -> None:
        if self._file is None or self.problem is not None:
            return
        try:
            self._file.write(data)
            if flush:
                self._file.flush()
        except OSError as error:
            self.problem = error


# -- records and messages -----------------------------------------------------------------------


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + _checksum(length) + data + _checksum(data)


def _key(field: int, wire_type: int) -> bytes:
    return _varint(field << 3 | wire_type)


def _number(field: int, value: int) -> bytes:
    return _key(field, 0) + _varint(value)


def _message(field: int, content: bytes) -> bytes:
    return _key(field, 2) + _varint(len(content)) + content


def _text(field: int, value: str) -> bytes:
    return _message(field, value.encode())


def _varint(value: int) -> bytes:
    """Seven bits at a time, the least first."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _castagnoli(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_TABLE = [_castagnoli(byte) for byte in range(256)]


def _checksum(data: bytes) -> bytes:
    """CRC-32C, turned and shifted: a record may itself hold checksums."""
    value = 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ _TABLE[(value ^ byte) & 0xFF]
    value ^= 0xFFFFFFFF
    masked = ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return struct.pack("<I", masked)
