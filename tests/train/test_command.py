"""``evergrad train``: which configuration and folder words mean, and what ``--help`` teaches."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from evergrad.cli import main as main_module
from evergrad.cli.main import COMMANDS, main
from evergrad.cli.train import prepare, run
from evergrad.train.config import ConfigError, settable, to_toml
from evergrad.train.exit_codes import ExitCode
from evergrad.train.option_help import options_help
from train.runs import tiny, train
from train.tiny_task import NAME, TinyTask

pytestmark = pytest.mark.usefixtures("without_report")


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_default_is_a_small_gpt() -> None:
    config, directory = prepare(None, False, [])
    assert (config.task, config.steps, config.batch, config.model.width) == ("gpt", 1500, 16, 128)
    assert directory.path == Path("runs/gpt")


def test_new_runs_get_new_folders() -> None:
    for expected in ("tinytask", "tinytask-2", "tinytask-3"):
        assert run(None, False, [NAME, "--steps", "1"]) == ExitCode.DONE
        assert Path("runs", expected, "config.toml").is_file()


def test_latest_run_is_resumed() -> None:
    for words in (["--steps", "3"], ["--steps", "2", "--name", "mine"]):
        run(None, False, [NAME, *words])
    config, directory = prepare(None, True, ["--steps", "9"], [NAME])
    assert (directory.path, config.steps) == (Path("runs/mine"), 9)
    with pytest.raises(ConfigError, match="there is no run 'lenet' under runs to resume"):
        prepare(None, True, ["lenet"])


def test_resuming_a_file_begins_it_where_there_is_nothing_yet() -> None:
    Path("a.toml").write_text(to_toml(tiny(Path("out"))))
    assert prepare(None, True, ["a.toml"], [NAME])[1].path == Path("out")
    assert run(None, True, ["a.toml", "--steps", "2"], [NAME]) == ExitCode.DONE
    config, directory = prepare(None, True, ["a.toml"], [NAME])
    assert (config.steps, directory.holds_run()) == (2, True)


def test_folder_of_a_run_is_not_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    train(tiny(Path("out")))
    assert run(None, False, [NAME, "--output", "out"]) == ExitCode.USAGE
    assert "out already holds a run; go on with --resume" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("size", "words", "message"),
    [
        (None, ["gtp"], "there is no task 'gtp'; did you mean 'gpt'?"),
        ("medium", [NAME], "has no preset 'medium'"),
        ("tiny", ["a.toml"], 'write preset = "tiny"'),
        (None, ["b.toml"], "there is no file b.toml"),
        (None, ["--stesp", "1"], "did you mean 'steps'?"),
        (None, ["--lr", "-1"], "optimizer: lr has to be positive"),
        (None, ["a.txt"], "neither a task, a *.toml file nor the folder of a run"),
    ],
)
def test_mistakes_leave_nothing_behind(
    size: str | None, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.toml").touch()
    Path("a.txt").touch()
    assert run(size, False, words) == ExitCode.USAGE
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in Path().iterdir()) == ["a.toml", "a.txt"]


def test_missing_data_leaves_no_run_behind(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("tiny", False, ["--data", "nowhere.txt"]) == ExitCode.USAGE
    assert "nowhere.txt" in capsys.readouterr().err
    assert not Path("runs").exists()


def test_help_of_training_names_every_option_and_exit_code() -> None:
    told = CliRunner().invoke(main, ["train", "--help"], terminal_width=100).output
    for rows in options_help(prepare(None, False, [])[0]).values():
        assert all(key in told for key, _ in rows)
    assert all(str(int(code)) in told for code in ExitCode)


def test_help_covers_all_that_can_be_set() -> None:
    config = TinyTask.presets()["small"]
    shown = [key[2:] for rows in options_help(config).values() for key, _ in rows]
    assert sorted(shown) == sorted(key.replace("_", "-") for key in settable(config))


def test_commands_are_listed_and_unknown_ones_corrected() -> None:
    told = CliRunner().invoke(main, ["--help"]).output
    assert all(name in told for name in COMMANDS)
    wrong = CliRunner().invoke(main, ["trian"])
    assert wrong.exit_code == ExitCode.USAGE
    assert "did you mean 'train'?" in wrong.output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name: str) -> None:
    told = CliRunner().invoke(main, [name, "--help"])
    assert told.exit_code == 0, told.output
    assert f"evergrad {name}" in told.output


def test_importing_the_engine_imports_nothing_of_this() -> None:
    code = (
        "import sys, evergrad\n"
        "names = ('evergrad.train', 'evergrad.cli', 'evergrad.models', 'click', 'rich')\n"
        "assert not [name for name in names if name in sys.modules]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_missing_packages_are_named() -> None:
    code = f"import sys; sys.modules['click'] = None; import {main_module.__name__}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'evergrad[app]'" in done.stderr
