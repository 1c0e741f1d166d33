"""``docs/training.md``: every command, option, file and exit code it names exists."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path

import pytest

from evergrad.train.config import from_mapping, full_key, preset, settable
from evergrad.train.directory import RunDirectory
from evergrad.train.exit_codes import ExitCode
from evergrad.train.task import TASKS

click = pytest.importorskip("click", reason="click is not installed: pip install 'evergrad[app]'")
main = importlib.import_module("evergrad.cli.main")

TEXT = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
# What follows a lone -- is for another program.
CALLS = sorted(
    set(re.findall(r"evergrad ([a-z]+)((?: (?!-- )[^`\n]+?)?)(?: -- .*)?(?=[`\n])", TEXT))
)
CONFIGURED = ("train", "memory", "explain")


def options_of(command: str) -> set[str]:
    """The options of a command as click knows them."""
    group = main.main
    found = group.get_command(click.Context(group), command)
    assert found is not None
    return {name for parameter in found.params for name in parameter.opts}


def is_in_a_configuration(option: str) -> bool:
    try:
        return bool(full_key(preset("gpt"), option.removeprefix("--")))
    except ValueError:
        return False


def test_every_command_is_described() -> None:
    assert set(main.COMMANDS) == {command for command, _ in CALLS}


@pytest.mark.parametrize(("command", "words"), CALLS, ids=lambda part: part.strip() or "plain")
def test_examples_use_what_there_is(command: str, words: str) -> None:
    for option in re.findall(r"--[a-z][a-z.-]*", words):
        known = option in options_of(command)
        assert known or (command in CONFIGURED and is_in_a_configuration(option)), option


@pytest.mark.parametrize("option", sorted(set(re.findall(r"`(--[a-z][a-z.-]*)", TEXT))))
def test_options_named_in_the_text_exist(option: str) -> None:
    of_commands = set().union(*map(options_of, main.COMMANDS))
    assert option in of_commands or is_in_a_configuration(option)


def test_every_option_of_a_run_is_described() -> None:
    named = {full_key(preset("gpt"), o) for o in re.findall(r"--([a-z][a-z.-]*)", TEXT)
             if is_in_a_configuration(f"--{o}")}  # fmt: skip
    wanted = {key for key in settable(preset("gpt")) if not key.startswith("model.")}
    assert wanted - named == set()


def test_tasks_are_those_there_are() -> None:
    table = TEXT.partition("## What can be trained")[2].partition("```")[0]
    assert set(re.findall(r"`([a-z]+)`", table)) == set(TASKS)


def test_the_configuration_can_be_read() -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    config = from_mapping(tomllib.loads(text))
    assert (config.steps, config.model.layers, config.optimizer.lr) == (4000, 6, 1e-3)


def test_exit_codes_are_those_there_are() -> None:
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE)] == list(ExitCode)


def test_files_are_where_the_page_says() -> None:
    places = RunDirectory(Path("runs/NAME"))
    for path in (places.config, places.metrics, places.samples, places.events, places.memory):
        assert f"`{path.relative_to(places.path)}" in TEXT
    assert f"`{places.checkpoints.name}/best.ckpt`" in TEXT
