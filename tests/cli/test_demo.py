"""``evergrad demo``: it trains, kills, resumes and compares, and says so if something differs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Run
from evergrad.cli import demo as module


def test_a_killed_run_equals_one_that_was_never_stopped(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    result = run("demo", "--steps", "80", "--output", str(folder))
    assert result.exit_code == 0, result.output
    assert "Killed (SIGKILL) after step" in result.output
    assert "80 losses are equal to the bit" in result.output
    assert "WRONG" not in result.output and result.output.count("ok  ") == 2
    assert {path.name for path in folder.iterdir()} == {"never-stopped", "killed"}


def test_a_difference_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    monkeypatch.setattr(module, "read_checkpoint", lambda path: _Content(path))
    made = module.Demo(tmp_path, 60, None)  # type: ignore[arg-type]
    for folder, peak in ((made.whole, 5), (made.killed, 5)):
        folder.mkdir()
        table = {"peak": {"planned": 4, "measured": peak}}
        (folder / "memory.json").write_text(json.dumps(table))
        (folder / "metrics.jsonl").write_text(json.dumps({"loss": len(folder.name)}) + "\n")
    assert not made._compare_runs() and not made._compare_memory()
    assert capsys.readouterr().out.count("WRONG") == 2


class _Content:
    def __init__(self, path: Path) -> None:
        self.content: dict[str, Any] = {}


def test_a_folder_that_is_used_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    result = run("demo", "--output", str(tmp_path))
    assert result.exit_code == 2 and "not an empty folder" in result.output
