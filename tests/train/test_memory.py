"""Memory: the plan is what is measured, to the byte, and does not depend on how long a run is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evergrad.train.exit_codes import ExitCode
from train.kills import write_config
from train.runs import start, tiny


def finished(folder: Path, *words: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A run in a process of its own: its memory table and the lines of its steps."""
    path = folder / "run"
    with start(write_config(folder, tiny(path, *words))) as process:
        output = process.communicate(timeout=100)[0]
    assert process.returncode == ExitCode.DONE, output
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return json.loads((path / "memory.json").read_text()), [x for x in lines if "live" in x]


@pytest.mark.parametrize("words", [(), ("--accumulate", "2")])
def test_measured_memory_is_the_planned(tmp_path: Path, words: tuple[str, ...]) -> None:
    table, lines = finished(tmp_path, *words, "--steps", "60")
    for name, row in table.items():
        if row["planned"] is not None and (name != "gradients" or words):
            assert row["measured"] == row["planned"], name
    assert table["at the end"]["measured"] == lines[-1]["live"]
    assert table["process"]["measured"] > table["peak"]["measured"]
    assert len({line["live"] for line in lines}) == 1  # from the first step to the last
    assert lines[-1]["peak"] == table["peak"]["planned"]
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"config.toml", "metrics.jsonl", "memory.json", "report.html", "loss.png"} <= names
    assert {"checkpoints", "samples", "tensorboard"} <= names
