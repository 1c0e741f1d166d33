"""What a run writes down as it goes: ``metrics.jsonl``.

Lines are ``{"step", "loss", "lr", "norm", "units_per_second", "live", "peak", "time"}``,
``{"step", "evaluation": {...}}`` and ``{"step", "sample": {"text"} or {"image"}}``. A checkpoint
knows how long the file was; a resumed run cuts it there, so that each step stands in it once.
"""

from __future__ import annotations

import json
import os
from pathlib import Path


class MetricsLog:
    """Appends lines to a file; while the disk is full they wait in memory."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        """Truncates the file to ``offset`` bytes and appends from there."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        self.offset: int = min(offset, os.fstat(self._file).st_size)
        self.missing: int = offset - self.offset  # bytes of former lines that are lost
        if path != Path(os.devnull):
            os.ftruncate(self._file, self.offset)
        self._waiting = b""
        self.problem: OSError | None = None

    def write(self, line: dict[str, object]) -> None:
        """Append a line, and those that wait."""
        self._waiting += json.dumps(line).encode() + b"\n"
        try:
            os.lseek(self._file, self.offset, os.SEEK_SET)
            _write_all(self._file, self._waiting)
        except OSError as error:
            self.problem = error
            os.ftruncate(self._file, self.offset)  # half a line is worse than none
        else:
            self.offset += len(self._waiting)
            self._waiting, self.problem = b"", None

    def sync(self) -> int:
        """Have all lines on disk; gives the length of the file. Raises if lines still wait."""
        if self.problem is not None:
            raise self.problem
        os.fsync(self._file)
        return self.offset

    def cut_after(self, step: int) -> None:
        """Remove lines of steps after this one."""
        os.lseek(self._file, 0, os.SEEK_SET)
        lines = os.read(self._file, self.offset).splitlines(keepends=True)
        kept = [line for line in lines if json.loads(line)["step"] <= step]
        self.offset = sum(map(len, kept))
        os.ftruncate(self._file, self.offset)

    def close(self) -> None:
        os.close(self._file)


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]
