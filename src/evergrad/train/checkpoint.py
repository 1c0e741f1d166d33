"""Checkpoints: whole files or none, checked when they are read, the newest sound one found.

A checkpoint is a file in PyTorch's format (every record with a checksum) of plain values and
tensors. It is written beside its place, brought to disk and renamed, so that a process that is
killed at any moment leaves the former checkpoints and at most a file that is never read.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evergrad import nn
from evergrad.io import load, save
from evergrad.train.config import ConfigError, RunConfig, parse_config
from evergrad.train.model_bound import no_larger_than
from evergrad.train.ranks import Ranks
from evergrad.train.shards import is_sharded, link_folder, read_shards, write_shards
from evergrad.train.task import Task, UntrustedTaskError, task_class
from evergrad.utils.atomic_file import replacing

if TYPE_CHECKING:
    from evergrad.core.types import JsonObject

FORMAT = 1
BEST = "best.ckpt"
_PATTERN = "step-*.ckpt"
_KEYS = {
    "format", "step", "batches", "best", "stale", "seconds", "model", "optimizer", "average",
    "random", "extras", "config", "metrics_offset",
}  # fmt: skip


class CheckpointError(RuntimeError):
    """A checkpoint that is damaged or missing."""


class MissingCheckpointError(CheckpointError, ConfigError):
    """A checkpoint or run that was named and does not exist."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was read, and found whole. It may name a task that is not in the table
    only if the user has trusted that."""

    path: Path
    content: JsonObject
    trusted: Collection[str] = ()

    @property
    def step(self) -> int:
        return int(self.content["step"])

    @property
    def config(self) -> RunConfig:
        """The configuration of the run that wrote it."""
        try:
            return parse_config(self.content["config"], self.trusted)
        except UntrustedTaskError as error:
            raise UntrustedTaskError(f"{self.path}: {error}") from error
        except (ValueError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{self.path} holds no configuration: {error}") from error

    def task(self, config: RunConfig | None = None) -> Task:
        """Its task, with what the task had found out about its data (the tokenizer)."""
        config = self.config if config is None else config
        with self._understood():
            return task_class(config.task)(config, self.content["extras"])

    def model(self, task: Task) -> nn.Module:
        """The trained model, in evaluation mode: the running mean of its weights if there is."""
        weights = self.content["average"] or self.content["model"]
        with self._understood():
            with no_larger_than(weights):
                model = task.model()
            model.load_state_dict(weights)
        return model.eval()

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """Errors about the content name the file; those about options, packages and files of the
        user's are raised as they are."""
        try:
            yield
        except (ConfigError, ImportError, OSError):
            raise
        except Exception as error:
            raise CheckpointError(
                f"{self.path} does not hold what its task needs: {error or type(error).__name__}"
            ) from error


def read_checkpoint(path: Path, trusted: Collection[str] = ()) -> Checkpoint:
    """Read a checkpoint, or the best (else the newest) of a run's folder; ``trusted`` are the tasks
    beyond the table that it may name as ``module:Class``."""
    if path.is_dir() and not is_sharded(path):
        path = _representative(path)
    if not path.exists():
        raise MissingCheckpointError(f"there is no checkpoint or run {path}")
    try:
        content = read_shards(path) if path.is_dir() else load(path)
    except Exception as error:  # any kind of damage is reported as such
        raise CheckpointError(f"{path} is damaged: {error}") from error
    if not isinstance(content, dict) or not content.keys() >= _KEYS:
        raise CheckpointError(f"{path} is not a checkpoint of evergrad train")
    if content["format"] != FORMAT:
        raise CheckpointError(f"{path} has format {content['format']}; this version reads {FORMAT}")
    return Checkpoint(path, content, trusted)


def _representative(directory: Path) -> Path:
    """The representative checkpoint of a run: its best, or else its newest."""
    folder = directory / "checkpoints" if (directory / "checkpoints").is_dir() else directory
    found = [folder / BEST] if (folder / BEST).exists() else sorted(folder.glob(_PATTERN))
    if not found:
        raise CheckpointError(f"there is no checkpoint in {directory}")
    return found[-1]


class CheckpointStore:
    """The checkpoints of one run: the last few, and the best."""

    def __init__(self, folder: Path, keep: int, ranks: Ranks | None = None) -> None:
        self.folder = folder
        self.keep = keep
        self.ranks: Ranks = Ranks() if ranks is None else ranks

    def paths(self) -> list[Path]:
        """All numbered checkpoints, the oldest first."""
        return sorted(self.folder.glob(_PATTERN))

    def write(self, content: dict[str, object], *, best: bool) -> Path:
        """Write a checkpoint, then remove what is too old; an ``OSError`` leaves all others."""
        path = self.folder / f"step-{content['step']:06d}.ckpt"
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.ranks.size > 1:
            write_shards(path, {"format": FORMAT, **content}, self.ranks)
        else:
            _remove_folder(path)
            save({"format": FORMAT, **content}, path)
        self.ranks.on_first(lambda: self._arrange(path, best))
        return path

    def _arrange(self, path: Path, best: bool) -> None:
        """Give the best checkpoint its second name and remove what is too old."""
        if best and path.is_dir():
            link_folder(path, self.folder / BEST)
        elif best:
            _remove_folder(self.folder / BEST)
            _duplicate(path, self.folder / BEST)
        for old in self.paths()[: -self.keep]:
            _remove_folder(old)
            old.unlink(missing_ok=True)

    def newest(self, report: Callable[[str], None]) -> Checkpoint | None:
        """The newest checkpoint that is whole. Damaged ones are reported and put aside."""
        for path in reversed(self.paths()):
            try:
                return read_checkpoint(path)
            except CheckpointError as error:
                aside = path.with_suffix(".ckpt.damaged")
                os.replace(path, aside)
                report(f"{error}; kept as {aside.name}, trying the one before")
        return None


def _remove_folder(path: Path) -> None:
    """Remove a checkpoint that several ranks wrote."""
    if path.is_dir():
        shutil.rmtree(path)


def _duplicate(source: Path, target: Path) -> None:
    """Give a file a second name at once; where there are no links, a copy."""
    waiting = target.with_suffix(".link")
    with suppress(FileNotFoundError):
        waiting.unlink()
    try:
        os.link(source, waiting)
    except OSError:
        with source.open("rb") as original, replacing(target) as copy:
            shutil.copyfileobj(original, copy)
    else:
        os.replace(waiting, target)
