"""``evergrad memory`` and ``evergrad explain``: what they show of a training they do not do."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import pytest

import evergrad
from evergrad.train.config import ConfigError, to_toml
from train.tiny_task import NAME, TinyTask

from .conftest import Run

pytest.importorskip("click", reason="click is not installed: pip install 'evergrad[app]'")
configured = importlib.import_module("evergrad.cli.configured")


def row(output: str, name: str) -> int:
    """The bytes of a row of the table."""
    match = re.search(rf"^  {name} +([\d,]+)", output, re.MULTILINE)
    assert match is not None, output
    return int(match[1].replace(",", ""))


@pytest.fixture(autouse=True)
def nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# -- which training -----------------------------------------------------------------------------


def test_a_task_a_file_and_a_folder_are_understood(tmp_path: Path) -> None:
    expected = configured.chosen_config(None, [NAME, "--batch", "3"])
    file = tmp_path / "config.toml"
    file.write_text(to_toml(expected))
    assert configured.chosen_config(None, [str(file)], [NAME]) == expected
    assert configured.chosen_config(None, [str(tmp_path)], [NAME]) == expected
    assert configured.chosen_config(None, [str(tmp_path), "--batch=5"], [NAME]).batch == 5


def test_the_default_is_a_gpt_and_sizes_are_presets() -> None:
    assert configured.chosen_config(None, []).task == "gpt"
    tiny, large = (configured.chosen_config(size, ["lenet"]) for size in ("tiny", "large"))
    assert tiny.task == large.task == "lenet" and tiny != large


@pytest.mark.parametrize(
    ("size", "words", "message"),
    [
        (None, ["gptt"], "did you mean 'gpt'"),
        (None, ["gpt", "--laiers", "3"], "did you mean 'layers'"),
        (None, ["."], "neither a task, a \\*.toml file nor the folder of a run"),
        (None, ["no.toml"], "there is no file no.toml"),
        ("tiny", ["no.toml"], 'write preset = "tiny"'),
    ],
)
def test_what_cannot_be_used_is_told(size: str | None, words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configured.chosen_config(size, words)


# -- memory -------------------------------------------------------------------------------------


def test_the_plan_adds_up(run: Run) -> None:
    result = run("memory", NAME)
    assert result.exit_code == 0, result.output
    config = TinyTask.presets()["small"]
    count = sum(p.numel() for p in TinyTask(config).model().parameters())
    assert f"{count} parameters, batches of 8" in result.stdout
    assert row(result.stdout, "parameters") == 2 * 4 * count  # and their running mean
    parts = ("parameters", "optimizer", "activations", "data, batch", "samples")
    assert row(result.stdout, "peak") == sum(row(result.stdout, part) for part in parts)
    assert "activations over time, in the training step" in result.stdout
    assert "alive at the peak" in result.stdout


def test_both_parts_of_an_accumulating_step_are_shown(run: Run) -> None:
    result = run("memory", NAME, "--accumulate", "2")
    assert "in the part for each micro-batch" in result.stdout
    assert "in the part that changes weights" in result.stdout


def test_a_limit_and_its_effect_are_shown(run: Run) -> None:
    words = ("memory", "gpt", "--tiny", "--layers", "2", "--width", "32", "--batch", "8")
    free = row(run(*words).stdout, "activations")
    limited = run(*words, "--memory-limit", str(free * 3 // 4))
    assert limited.exit_code == 0, limited.output
    assert row(limited.stdout, "activations") <= free * 3 // 4
    assert "what is missing is computed again" in limited.stdout
    roomy = run(*words, "--memory-limit", "1GB")
    assert "the limit of 1.00 GiB changes nothing" in roomy.stdout


def test_a_limit_that_cannot_be_met_has_its_exit_code(run: Run) -> None:
    result = run("memory", NAME, "--memory-limit", "64")
    assert result.exit_code == 6
    assert "the limit is 64" in result.stderr


def test_the_page_needs_nothing_else(run: Run, tmp_path: Path) -> None:
    result = run("memory", NAME, "--html", "plan.html")
    assert result.exit_code == 0
    page = (tmp_path / "plan.html").read_text()
    assert "<svg" in page and "parameters" in page
    assert "src=" not in page and "href=" not in page


@pytest.mark.parametrize("command", ["memory", "explain"])
def test_nothing_is_trained_or_written(run: Run, tmp_path: Path, command: str) -> None:
    before = evergrad.get_rng_state().tolist()
    assert run(command, NAME).exit_code == 0
    assert list(tmp_path.iterdir()) == []
    assert evergrad.get_rng_state().tolist() == before


@pytest.mark.parametrize("command", ["memory", "explain"])
def test_an_eager_step_has_nothing_to_show(run: Run, command: str) -> None:
    result = run(command, NAME, "--eager")
    assert result.exit_code == 2
    assert "leave out --eager" in result.stderr


# -- explain ------------------------------------------------------------------------------------


def test_the_step_is_explained(run: Run) -> None:
    result = run("explain", NAME)
    assert result.exit_code == 0, result.output
    for words in ("equations as", "fused loops", "memory\n", "NumPy calls", "guards"):
        assert words in result.stdout


def test_files_hold_everything(run: Run, tmp_path: Path) -> None:
    result = run("explain", NAME, "--html", "step.html", "--json", "step.json")
    assert result.stdout.split() == ["step.html", "step.json"]
    data = json.loads((tmp_path / "step.json").read_text())
    assert data["whole"]["nodes"] and data["whole"]["code"]
    assert (tmp_path / "step.html").read_text().startswith("<!doctype html>")


def test_each_of_two_programs_gets_a_page(run: Run, tmp_path: Path) -> None:
    run("explain", NAME, "--accumulate", "2", "--html", "step.html")
    assert {path.name for path in tmp_path.iterdir()} == {"step-micro.html", "step-update.html"}


def test_a_file_that_cannot_be_written_is_told(run: Run) -> None:
    result = run("explain", NAME, "--html", "no/such/folder.html")
    assert result.exit_code == 2
    assert "no/such/folder.html" in result.stderr
