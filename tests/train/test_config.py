"""One configuration from presets, TOML and ``--key value``; mistakes name what is nearest."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evergrad.train.config import (
    ConfigError,
    RunConfig,
    override,
    preset,
    read_config,
    settable,
    to_toml,
    updated,
)
from evergrad.train.option_help import options_help
from evergrad.train.task import TASKS, task_class
from evergrad.train.values import parse_bytes
from train.tiny_task import NAME, TinyConfig, TinyTask


@pytest.fixture
def config() -> RunConfig:
    return preset(NAME)


def test_options_are_set_by_full_and_short_keys(config: RunConfig) -> None:
    words = ["--steps", "7", "--optimizer.lr=3e-4", "--width", "12", "--data", "somewhere"]
    found = override(config, words)
    assert (found.steps, found.optimizer.lr, found.model.width) == (7, 3e-4, 12)
    assert found.data.source == "somewhere"
    assert dataclasses.replace(found, model=config.model).model == TinyConfig()


def test_hyphens_and_underscores_are_one(config: RunConfig) -> None:
    assert override(config, ["--log-every", "2"]) == override(config, ["--log_every", "2"])


@pytest.mark.parametrize(
    ("words", "expected"),
    [(["--eager"], True), (["--eager", "--steps", "3"], True), (["--eager", "true"], True),
     (["--eager=no"], False), (["--no-eager"], False)],
)  # fmt: skip
def test_flags_need_no_value(config: RunConfig, words: list[str], expected: bool) -> None:
    assert override(config, words).eager is expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--stesp", "4"], "no option 'stesp'; did you mean 'steps'?"),
        (["--optimizer.wamrup", "4"], "did you mean 'optimizer.warmup'?"),
        (["--precision", "bfloat61"], "precision cannot be 'bfloat61'; did you mean 'bfloat16'?"),
        (["--steps", "many"], "steps is a whole number, not 'many'"),
        (["--steps", "1.5"], "steps is a whole number, not '1.5'"),
        (["--steps", "0"], "steps has to be positive, not 0"),
        (["--lr", "fast"], "optimizer.lr is a number, not 'fast'"),
        (["--lr", "nan"], "lr has to be positive, not nan"),
        (["--betas", "0.9"], "optimizer.betas takes 2 values"),
        (["--eager=maybe"], "eager is true or false, not 'maybe'"),
        (["--steps"], "--steps needs a value"),
        (["--steps", "--eager"], "--steps needs a value"),
        (["steps", "4"], "'steps' stands alone"),
        (["--memory-limit", "much"], "'much' is not a number of bytes"),
        (["--memory-limit", "1MB", "--eager"], "leave out --eager"),
        (["--held-out", "1.5"], "held_out has to be between 0 and 1"),
    ],
)
def test_mistakes_are_told(config: RunConfig, words: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        override(config, words)
    assert message in str(caught.value)


def test_key_of_two_parts_has_to_be_whole() -> None:
    @dataclasses.dataclass(frozen=True)
    class Clash:
        warmup: int = 3

    config = dataclasses.replace(preset(NAME), model=Clash())
    with pytest.raises(ConfigError, match=r"may be model\.warmup or optimizer\.warmup"):
        override(config, ["--warmup", "3"])
    assert override(config, ["--model.warmup", "4"]).model.warmup == 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [("300", 300), ("64MB", 64 << 20), ("1.5GiB", 3 << 29), ("2k", 2048), ("7 kb", 7168)],
)
def test_numbers_of_bytes(text: str, expected: int) -> None:
    assert parse_bytes(text) == expected


# -- TOML -----------------------------------------------------------------------------------------


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_file_begins_from_its_preset(tmp_path: Path) -> None:
    text = f'task = "{NAME}"\nsteps = 9\n[optimizer]\nlr = 1\n[model]\nwidth = 3\n'
    found = read_config(written(tmp_path / "a.toml", text), [NAME])
    base = TinyTask.presets()["small"]
    assert found == updated(base, {"steps": 9, "optimizer.lr": 1.0, "model.width": 3})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps = ", "cannot be read as TOML"),
        (f'task = "{NAME}"\nstesp = 3', "did you mean 'steps'?"),
        (f'task = "{NAME}"\n[optimiser]\nlr = 3', "no part 'optimiser'; did you mean 'optimizer'?"),
        (f'task = "{NAME}"\nsteps = "3.5"', "steps is a whole number"),
        (f'task = "{NAME}"\nsteps = true', "steps is a whole number"),
        (f'task = "{NAME}"\npreset = "huge"', "has no preset 'huge'"),
        ('task = "gtp"', "no task 'gtp'; did you mean 'gpt'?"),
        ('task = "nowhere.at.all:Task"', "cannot be imported"),
        ('task = "json:JSONDecoder"', "not a class derived from"),
    ],
)
def test_mistakes_in_files_name_the_file(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path / "a.toml", text)
    with pytest.raises(ConfigError) as caught:
        read_config(path, [NAME, "nowhere.at.all:Task", "json:JSONDecoder"])
    assert message in str(caught.value)
    assert "a.toml" in str(caught.value)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no file"):
        read_config(tmp_path / "a.toml")


@given(
    name=st.text(max_size=20), steps=st.integers(1, 10**9), lr=st.floats(1e-9, 1e9),
    betas=st.tuples(*[st.floats(0, 1, exclude_max=True)] * 2), eager=st.booleans(),
    limit=st.none() | st.integers(1, 2**50),
)  # fmt: skip
def test_everything_survives_toml(
    tmp_path_factory: pytest.TempPathFactory, name: str, steps: int, lr: float,
    betas: tuple[float, float], eager: bool, limit: int | None,
) -> None:  # fmt: skip
    values = {"steps": steps, "lr": lr, "betas": betas, "eager": eager and limit is None}
    config = updated(preset(NAME), {**values, "name": name})
    config = dataclasses.replace(config, memory_limit=limit)
    path = tmp_path_factory.mktemp("toml") / "a.toml"
    path.write_text(to_toml(config), "utf-8")
    assert read_config(path, [NAME]) == config


# -- tasks and help -------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
def test_presets_of_tasks_are_whole_and_survive_toml(task: str, tmp_path: Path) -> None:
    presets = task_class(task).presets()
    assert list(presets) == ["tiny", "small", "medium", "large"]
    for name, config in presets.items():
        found = read_config(written(tmp_path / "a.toml", to_toml(config)))
        hidden = task_class(task).set_by_data
        assert all(f"model.{option}" not in settable(config) for option in hidden)
        assert to_toml(found) == to_toml(config), name


def test_help_has_a_meaning_for_every_option_but_the_models(config: RunConfig) -> None:
    for title, rows in options_help(config).items():
        assert rows
        if "model" not in title:
            assert all(not meaning.startswith("[") for _, meaning in rows), title
