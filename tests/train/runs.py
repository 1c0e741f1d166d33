"""Runs for tests: made in this process or another, and compared to the bit."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from evergrad.core.tensor import Tensor
from evergrad.train.checkpoint import read_checkpoint
from evergrad.train.config import RunConfig, override
from evergrad.train.console import Console
from evergrad.train.directory import RunDirectory
from evergrad.train.exit_codes import ExitCode
from evergrad.train.loop import Trainer
from train.tiny_task import NAME, TinyTask

TESTS = Path(__file__).parent.parent
# What depends on the clock or on how the process got here.
UNSTABLE = ("time", "units_per_second", "live", "peak")


def tiny(path: Path, *words: str) -> RunConfig:
    """The tiny task's configuration with other options, its run in ``path``."""
    config = override(TinyTask.presets()["small"], words)
    return dataclasses.replace(config, output=str(path))


def trainer(config: RunConfig) -> Trainer:
    return Trainer(config, RunDirectory(Path(config.output)), Console())


def train(config: RunConfig) -> ExitCode:
    """Train here, from the beginning or from the newest checkpoint of the folder."""
    return trainer(config).run()


def command(config_file: Path, *words: str) -> list[str]:
    given = [str(config_file), "--trust-task", NAME, *words]
    return [sys.executable, "-m", "evergrad", "train", *given]


def environment() -> dict[str, str]:
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OPENBLAS_NUM_THREADS": "1"}


def start(config_file: Path, *words: str) -> subprocess.Popen[str]:
    """Train in a process of its own."""
    return subprocess.Popen(
        command(config_file, *words), env=environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a run that must not depend on where it was interrupted."""
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in UNSTABLE} for line in lines]


def final_state(path: Path, step: int) -> dict[str, Any]:
    """What the checkpoint of a step holds, but for time and place."""
    content = read_checkpoint(path / "checkpoints" / f"step-{step:06d}.ckpt").content
    left_out = ("seconds", "config", "metrics_offset")
    return {key: value for key, value in content.items() if key not in left_out}


def assert_same_bits(one: Any, other: Any, place: str = "state") -> None:
    """Equal in structure, types and every bit."""
    assert type(one) is type(other), place
    if isinstance(one, dict):
        assert one.keys() == other.keys(), place
        for key in one:
            assert_same_bits(one[key], other[key], f"{place}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), place
        for number, pair in enumerate(zip(one, other, strict=True)):
            assert_same_bits(*pair, f"{place}[{number}]")
    elif isinstance(one, Tensor):
        a, b = one.detach().numpy(), other.detach().numpy()
        assert a.dtype == b.dtype and a.shape == b.shape, place
        assert a.tobytes() == b.tobytes(), place
    else:
        assert one == other, place


def assert_same_runs(one: Path, other: Path, step: int) -> None:
    """Two runs that cannot be told apart: every parameter, moment, stream and logged number."""
    assert_same_bits(final_state(one, step), final_state(other, step))
    assert metrics(one) == metrics(other)
