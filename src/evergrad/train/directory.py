"""The folder of a run: what is where, which folder a run gets, and that only one process uses it.

``config.toml``, ``metrics.jsonl``, ``checkpoints/step-000250.ckpt``, ``checkpoints/best.ckpt``,
``samples/step-000250.png``, ``tensorboard/``, and at the end ``memory.json`` and ``report.html``
with its pictures.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from evergrad.train.config import ConfigError, RunConfig, to_toml
from evergrad.utils.atomic_file import SUFFIX, accepts_files, replacing

RUNS = Path("runs")


class RunDirectory:
    """The places of one run's files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config: Path = path / "config.toml"
        self.metrics: Path = path / "metrics.jsonl"
        self.memory: Path = path / "memory.json"
        self.about: Path = path / "about.json"
        self.checkpoints: Path = path / "checkpoints"
        self.samples: Path = path / "samples"
        self.events: Path = path / "tensorboard"
        self._lock: int | None = None

    def holds_run(self) -> bool:
        return self.config.is_file()

    def prepare(self, config: RunConfig) -> None:
        """Make the folder and write down what is going to be done. What processes left behind that
        were killed while they wrote is removed: no other process writes here now."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.take()
        for folder in (self.checkpoints, self.samples):
            folder.mkdir(exist_ok=True)
        for part in self.path.rglob(f".*{SUFFIX}"):
            part.unlink()
        write_text(self.config, to_toml(config))

    def take(self) -> None:
        """Keep other processes out until this one ends, however it ends."""
        if self._lock is not None:
            return
        try:
            import fcntl
        except ImportError:  # not a POSIX system
            return
        self._lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(
                f"another process is training in {self.path}; wait for it, or give --output"
            ) from None

    def release(self) -> None:
        """Let other processes use the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def write_text(path: Path, text: str) -> None:
    """Write a file, whole or not at all."""
    with replacing(path) as file:
        file.write(text.encode())


def new_directory(config: RunConfig) -> RunDirectory:
    """The folder of a new run: the one asked for, or the next that is free under ``runs``."""
    if config.output:
        chosen = RunDirectory(Path(config.output))
        if chosen.holds_run():
            raise ConfigError(
                f"{chosen.path} already holds a run; go on with --resume, or give another --output"
            )
        return _makeable(chosen)
    number, found = 1, RunDirectory(RUNS / run_name(config))
    while found.path.exists():
        number += 1
        found = RunDirectory(RUNS / f"{run_name(config)}-{number}")
    return _makeable(found)


def _makeable(directory: RunDirectory) -> RunDirectory:
    require_makeable(directory.path)
    return directory


def require_makeable(path: Path) -> None:
    """Raise ConfigError if a folder for runs cannot be made, before any work is done for it."""
    nearest = path.absolute()
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        raise ConfigError(f"the run cannot be kept in {path}: {nearest} is a file")
    if not accepts_files(nearest):
        raise ConfigError(f"the run cannot be kept in {path}: {nearest} is not writable")


def latest_directory(name: str | None = None) -> RunDirectory:
    """The run that was last active under ``runs``, of that name if one is given."""
    wanted = re.compile(rf"{re.escape(name)}(-\d+)?" if name else ".*")
    found = [d for d in map(RunDirectory, _folders(RUNS)) if wanted.fullmatch(d.path.name)]
    held = [d for d in found if d.holds_run()]
    if not held:
        raise ConfigError(f"there is no run{f' {name!r}' if name else ''} under {RUNS} to resume")
    return max(held, key=_last_active)


def missing_run(path: Path) -> ConfigError:
    """The error for the folder of a run that does not exist; it names those that do."""
    held = sorted(str(d.path) for d in map(RunDirectory, _folders(RUNS)) if d.holds_run())
    there = f"; there are {', '.join(held)}" if held else f"; there is none under {RUNS} yet"
    return ConfigError(f"there is no run {path}{there}")


def _folders(place: Path) -> Iterator[Path]:
    return place.iterdir() if place.is_dir() else iter(())


def _last_active(directory: RunDirectory) -> float:
    known = [p for p in (directory.metrics, directory.config) if p.exists()]
    return max(path.stat().st_mtime for path in known)


def run_name(config: RunConfig) -> str:
    """The run's name; by default that of its task."""
    return config.name or config.task.rpartition(":")[2].lower()
