"""docs/chat.md: every command of the page runs, with tiny sizes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from evergrad.train import loop

from .conftest import Run

PAGE = Path(__file__).parents[2] / "docs" / "chat.md"
FEW = ["--tiny", "--steps", "2", "--evaluate-batches", "1", "--sample-every", "0"]
LESS = {
    "train": ["--layers", "1", "--width", "16", "--heads", "2", "--context", "16"],
    "flux": ["--width", "16", "--heads", "1", "--sampling-steps", "1"],
    "finetune": ["--context", "32", "--batch", "1"],
}


def blocks() -> list[str]:
    """Those without a language: commands and lines of files."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [text for language, text in found if not language]


def commands() -> list[list[str]]:
    lines = [line for block in blocks() for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("evergrad ")]


def test_every_command_runs(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("PIL", reason="pillow is not installed: pip install 'evergrad[app]'")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(loop, "write_report", lambda path, *given: [Path(path) / "report.html"])
    for name, block in zip(("talks", "pairs"), [b for b in blocks() if b[0] == "{"], strict=True):
        Path(f"{name}.jsonl").write_text(block)
    seen = []
    for words in commands():
        seen.append(words[0])
        if words[0] == "serve":
            monkeypatch.setattr("evergrad.serve.server.run", lambda app, listening, ready: ready())
            words += ["--port", "0", "--sequences", "1"]
        elif words[0] in ("train", "finetune"):
            is_flux = "flux" in words
            given = [w for w in words if w != "--steps" and w != "300"]
            sizes = LESS["flux" if is_flux else words[0]] if "runs/purple" not in words else []
            words = [*given, *FEW, *sizes]
        done = run(*words)
        assert done.exit_code == 0, (words, done.output)
    assert seen.count("finetune") == 3 and {"chat", "serve", "sample"} <= set(seen)
    assert (tmp_path / "circle.png").is_file() and (tmp_path / "adapters/talks").is_dir()
