"""``evergrad bench``: what it times, and where the benchmark against peers is."""

from __future__ import annotations

import importlib
import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import evergrad
from train.tiny_task import NAME, TinyTask

from .conftest import Run

pytest.importorskip("click", reason="click is not installed: pip install 'evergrad[app]'")
bench = importlib.import_module("evergrad.cli.bench")


@pytest.fixture(autouse=True)
def tiny_task_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "TASKS", {NAME: NAME})


def test_a_step_is_timed_both_ways() -> None:
    timing = bench.time_task(TinyTask.presets()["small"], seconds=0.05)
    assert timing.compiled > 0 and timing.eager > 0
    assert timing.unit == "points" and timing.units_per_step == 8
    assert timing.units_per_second == 8 / timing.compiled


def test_times_are_told(run: Run) -> None:
    result = run("bench", "--tasks", NAME, "--size", "small", "--seconds", "0.02")
    assert result.exit_code == 0, result.output
    head, line = result.stdout.splitlines()
    assert "compiled, ms" in head and line.startswith(NAME) and line.endswith("points")


def test_times_are_data_on_request(run: Run) -> None:
    result = run("bench", "--tasks", NAME, "--size", "small", "--seconds", "0.02", "--json",
                 "--threads", "1")  # fmt: skip
    (timing,) = json.loads(result.stdout)
    assert timing["task"] == NAME and timing["eager"] > 0
    assert evergrad.get_num_threads() == 1


def test_an_unknown_task_is_told_with_the_nearest(run: Run) -> None:
    result = run("bench", "--tasks", NAME + "x")
    assert result.exit_code == 2
    assert f"did you mean {NAME!r}" in result.stderr


def test_options_of_the_peers_need_the_peers(run: Run) -> None:
    result = run("bench", "--", "--workloads", "gpt_tiny")
    assert result.exit_code == 2
    assert "'--workloads' is for the peers" in result.stderr


@pytest.mark.parametrize("size", ["tiny", "small"])
def test_a_size_that_is_written_as_for_training_is_told_how(run: Run, size: str) -> None:
    result = run("bench", f"--{size}")
    assert result.exit_code == 2
    assert f"write --size {size}" in result.stderr


def test_peers_run_from_the_checkout(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []

    def remember(command: list[str], **options: Any) -> Any:
        called.append((command[1:], options["cwd"]))
        return SimpleNamespace(wait=lambda: 1, poll=lambda: 1)

    monkeypatch.setattr(subprocess, "Popen", remember)
    result = run("bench", "--peers", "--", "--workloads", "gpt_tiny")
    root = Path(__file__).parents[2]
    assert called == [(["-m", "bench.peers.run", "--workloads", "gpt_tiny"], root)]
    assert result.exit_code == 1


def test_without_a_checkout_the_way_to_the_peers_is_told(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "lib" / "site-packages" / "evergrad" / "__init__.py"
    monkeypatch.setattr(evergrad, "__file__", str(installed))
    result = run("bench", "--peers")
    assert result.exit_code == 2
    assert "make bench" in result.stderr
