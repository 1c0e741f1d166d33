"""The long versions of the training tests: fifty kills, and runs of 100 to 10,000 steps."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from evergrad.train import loop
from train.kills import survive
from train.runs import environment


def test_fifty_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At random moments and inside of checkpoint writes; then equal to the bit."""
    monkeypatch.setattr(loop, "write_report", lambda path, trusted: [path / "report.html"])
    assert survive(tmp_path, steps=4000, kills=50, seed=7) == 50


def live_and_resident(folder: Path, steps: int) -> tuple[int, int]:
    """Live bytes at the end of a ``--small`` run, and the most memory its process had by then."""
    words = ["--small", "--steps", str(steps), "--output", str(folder), "--keep", "1"]
    command = [sys.executable, "-m", "evergrad", "train", "gpt", *words]
    subprocess.run(command, env=environment(), check=True)
    table = json.loads((folder / "memory.json").read_text())
    return table["at the end"]["measured"], table["process"]["measured"]


@pytest.mark.skipif(sys.platform == "win32", reason="the system does not tell")
def test_memory_does_not_depend_on_the_length_of_a_run(tmp_path: Path) -> None:
    found = [live_and_resident(tmp_path / str(steps), steps) for steps in (100, 1000, 10_000)]
    live, resident = zip(*found, strict=True)
    assert len(set(live)) == 1, live
    assert max(resident) <= 1.01 * min(resident), resident
