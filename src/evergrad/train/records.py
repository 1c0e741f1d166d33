"""A run as recorded in its folder: configuration, metrics, samples, memory.

Reads what :mod:`.metrics` writes. A run may have been killed while it wrote, so a last line that
is cut and files that are not there yet are no errors; they are noted in ``problems``.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evergrad import config as limits
from evergrad.train.config import ConfigError, parse_toml, read_toml
from evergrad.train.directory import RunDirectory
from evergrad.train.task import check_named_in_file, task_class
from evergrad.utils.bounded_read import read_bounded

if TYPE_CHECKING:
    from evergrad.core.types import JsonObject

Line = dict[str, Any]
_HOW = "set EVERGRAD_UNPACKED_BYTES"


@dataclass
class Run:
    """Everything that is known of a run."""

    path: Path
    config_text: str = ""
    config: JsonObject = field(default_factory=dict)
    steps: list[Line] = field(default_factory=list)
    evaluations: list[Line] = field(default_factory=list)
    samples: list[Line] = field(default_factory=list)
    memory: dict[str, JsonObject] = field(default_factory=dict)  # planned, measured
    about: dict[str, object] = field(default_factory=dict)  # parameters, start, machine
    problems: list[str] = field(default_factory=list)
    trusted: Collection[str] = ()

    @property
    def name(self) -> str:
        return str(self.config.get("name") or self.path.resolve().name)

    @property
    def last_step(self) -> int:
        return max((line["step"] for line in (*self.steps, *self.evaluations)), default=0)

    @property
    def best(self) -> Line | None:
        """The evaluation with the least loss."""
        known = [e for e in self.evaluations if "loss" in e["evaluation"]]
        return min(known, key=lambda line: line["evaluation"]["loss"], default=None)

    @property
    def unit(self) -> str:
        """What the task counts: tokens or images; ``units`` if it is not known or not trusted."""
        try:
            name = check_named_in_file(str(self.config.get("task", "")), self.trusted)
            return task_class(name).unit
        except ConfigError:
            return "units"


def read_run(path: Path, trusted: Collection[str] = ()) -> Run:
    """Read the folder of a run, which may still be going on."""
    directory = RunDirectory(path)
    if not (directory.config.exists() or directory.metrics.exists()):
        raise ConfigError(
            f"{path} holds no run: neither config.toml nor metrics.jsonl is there; give the folder "
            "that `evergrad train` named, like runs/gpt"
        )
    run = Run(path, trusted=trusted)
    _read_config(run, directory.config)
    _read_metrics(run, directory.metrics)
    run.memory = _read_data(run, directory.memory)
    run.about = _read_data(run, directory.about)
    return run


def _read_config(run: Run, path: Path) -> None:
    try:
        run.config_text = read_toml(path)
        run.config = parse_toml(run.config_text)
    except FileNotFoundError:
        run.problems.append(f"{path.name} is missing")
    except ConfigError as error:
        run.problems.append(f"{path.name} cannot be read: {error}")


def _read_metrics(run: Run, path: Path) -> None:
    try:
        lines = read_bounded(path, limits.UNPACKED_BYTES, _HOW).split(b"\n")
    except FileNotFoundError:
        run.problems.append(f"{path.name} is missing: nothing has been measured yet")
        return
    *whole, rest = lines
    bad = [number for number, line in enumerate(whole, 1) if not _enter(run, line)]
    if bad:
        count = "a line" if len(bad) == 1 else f"{len(bad)} lines"
        run.problems.append(f"{path.name}: {count} left out as not readable, first line {bad[0]}")
    if rest:
        run.problems.append(
            f"{path.name}: the last line is cut (the run ended while writing it) and left out"
        )


def _enter(run: Run, text: bytes) -> bool:
    """Put a line where it belongs; returns whether it could be parsed."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return False
    if not (isinstance(line, dict) and isinstance(line.get("step"), int)):
        return False
    if isinstance(line.get("evaluation"), dict):
        run.evaluations.append(line)
    elif isinstance(line.get("sample"), dict):
        run.samples.append(line)
    elif "loss" in line:
        run.steps.append(line)
    else:
        return False
    return True


def _read_data(run: Run, path: Path) -> JsonObject:
    """The content of a JSON file; nothing if it is not there, as before the end of a run."""
    try:
        found = json.loads(read_bounded(path, limits.UNPACKED_BYTES, _HOW))
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        run.problems.append(f"{path.name} cannot be read: {error}")
        return {}
    return found if isinstance(found, dict) else {}
