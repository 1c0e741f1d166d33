"""Files name only tasks of the table: anything else is imported for nobody but the user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import evergrad as eg
from evergrad.cli.main import main
from evergrad.train.checkpoint import CheckpointError, read_checkpoint
from evergrad.train.config import ConfigError, from_mapping, preset, read_config, to_toml
from evergrad.train.records import read_run
from evergrad.train.report import write_report
from evergrad.train.task import TASKS, UntrustedTaskError

# Importing the module leaves a mark.
HOSTILE = "from pathlib import Path\nPath(__file__).with_name('imported').touch()\n"
NAMES = [
    "hostile:Task", "hostile:", ":Task", "hostile.sub:Task", "hostile:Task:more", " hostile:Task",
    "gpt:hostile", "os:system", "evergrad.train.tasks.text:GPTTask", "hostile :Task",
]  # fmt: skip
CONTENT: dict[str, Any] = dict.fromkeys(
    ("step", "batches", "best", "stale", "seconds", "optimizer", "average", "random"), 0
) | {"format": 1, "metrics_offset": 0, "model": {}, "extras": {}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a module that must not be imported, and the path to it."""
    (tmp_path / "hostile.py").write_text(HOSTILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "hostile", raising=False)
    return tmp_path


def quoted(name: str) -> str:
    return f'task = "{name}"\n'


def checkpoint(folder: Path, config: object) -> Path:
    path = folder / "run" / "checkpoints" / "step-000001.ckpt"
    path.parent.mkdir(parents=True, exist_ok=True)
    eg.save({**CONTENT, "config": config}, path)
    (folder / "run" / "config.toml").write_text(str(config))
    return path


@pytest.mark.parametrize("name", NAMES)
def test_names_in_files_are_not_imported(folder: Path, name: str) -> None:
    path = checkpoint(folder, quoted(name))
    (folder / "a.toml").write_text(quoted(name))
    before = set(sys.modules)
    for read in (
        lambda: read_checkpoint(path).task(),
        lambda: read_checkpoint(folder / "run").config,
        lambda: read_config(folder / "a.toml"),
        lambda: from_mapping({"task": name}),
    ):
        with pytest.raises(UntrustedTaskError, match="--trust-task"):
            read()
    assert read_run(folder / "run").unit == "units"
    assert not (folder / "imported").exists()
    assert "hostile" not in set(sys.modules) - before


@pytest.mark.parametrize(
    "words",
    [
        ["sample", "run"], ["sample", "run/checkpoints/step-000001.ckpt"], ["train", "a.toml"],
        ["train", "run", "--resume"], ["train", "a.toml", "--resume"], ["memory", "run"],
        ["memory", "a.toml"], ["explain", "a.toml"], ["explain", "run"], ["report", "run"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_no_command_imports_what_a_file_names(folder: Path, words: list[str]) -> None:
    text = quoted("hostile:Task")
    checkpoint(folder, text)
    (folder / "a.toml").write_text(text)
    (folder / "run" / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
    done = CliRunner().invoke(main, words)
    assert not (folder / "imported").exists()
    if words[0] != "report":  # which needs no task
        assert done.exit_code == 2
        assert "--trust-task hostile:Task" in done.output


def test_trust_of_one_name_is_no_trust_of_others(folder: Path) -> None:
    path = checkpoint(folder, quoted("hostile:Other"))
    with pytest.raises(UntrustedTaskError):
        read_checkpoint(path, ["hostile:Task", "hostile"]).task()
    assert not (folder / "imported").exists()


def test_a_trusted_name_is_imported(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be imported"):
        read_checkpoint(checkpoint(folder, quoted("hostile:Task")), ["hostile:Task"]).task()
    assert (folder / "imported").exists()


def test_the_flag_trusts_a_name(folder: Path) -> None:
    (folder / "a.toml").write_text(quoted("hostile:Task"))
    done = CliRunner().invoke(main, ["memory", "a.toml", "--trust-task", "hostile:Task"])
    assert done.exit_code == 2 and "cannot be imported" in done.output
    assert (folder / "imported").exists()


def test_names_of_the_table_need_no_trust(folder: Path) -> None:
    for name in TASKS:
        assert from_mapping({"task": name}).task == name


@pytest.mark.parametrize(
    "config", [None, 3, [], b"task", "task = ", "a = " + "[" * 8000, "steps=" + "9" * 9999]
)
def test_a_checkpoint_without_configuration_is_damaged(folder: Path, config: object) -> None:
    path = checkpoint(folder, config)
    with pytest.raises(CheckpointError, match="holds no configuration"):
        read_checkpoint(path).task()


def test_a_checkpoint_cannot_have_a_larger_model_made_than_it_holds(folder: Path) -> None:
    config = to_toml(preset("mlp", "tiny"))
    for word in ("width = 9999999", "layers = 99999999"):
        key = word.partition(" ")[0]
        lines = [word if line.startswith(f"{key} ") else line for line in config.splitlines()]
        found = read_checkpoint(checkpoint(folder, "\n".join(lines)))
        try:
            task = found.task()
        except (CheckpointError, ConfigError):
            continue
        with pytest.raises(CheckpointError, match="does not hold what its task needs"):
            found.model(task)


def test_a_report_shows_only_pictures_of_its_run(folder: Path) -> None:
    secret = folder / "secret.png"
    secret.write_bytes(b"a secret")
    run = folder / "run"
    run.mkdir()
    (run / "link.png").symlink_to(secret)
    os.mkfifo(run / "fifo.png")
    images = [
        "../secret.png",
        str(secret),
        "link.png",
        "fifo.png",
        "/dev/zero",
        ".",
        "\0",
        "a" * 9999,
    ]
    lines = [{"step": 1, "sample": {"image": image}} for image in images]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    *_, page = write_report(run)
    assert "YSBzZWNyZXQ" not in page.read_text()  # the secret in base64


def test_a_process_imports_nothing_from_a_checkpoint(folder: Path) -> None:
    path = checkpoint(folder, quoted("hostile:Task"))
    done = subprocess.run(
        [sys.executable, "-m", "evergrad", "sample", str(path)], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert not (folder / "imported").exists()
