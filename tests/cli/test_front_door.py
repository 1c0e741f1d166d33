"""What the command line promises: refusals before work, true tables, nothing left behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from cli.conftest import Run
from evergrad.cli.main import COMMANDS, CommandList
from evergrad.cli.train import prepare
from evergrad.train.config import ConfigError, preset
from evergrad.train.option_help import options_help
from evergrad.train.task import TASKS, UntrustedTaskError

TINY = ("gpt", "--tiny", "--layers", "1", "--width", "16", "--heads", "1", "--batch", "4")
LOADERS = """
import evergrad as eg
from evergrad.utils.data import DataLoader, IterableDataset, TensorDataset

class Stream(IterableDataset):
    def __iter__(self):
        yield eg.zeros(1, 8, 8), 0

def examples(count):
    x = eg.randn(count, 1, 28, 28, generator=eg.Generator().manual_seed(count))
    return DataLoader(TensorDataset(x, (x.mean((1, 2, 3)) > 0).long()), batch_size=7)

def one(): return examples(80)
def two(): return examples(80), examples(40)
def stream(): return DataLoader(Stream())
def nothing(): return 3
def flat(): return DataLoader(TensorDataset(eg.zeros(50, 4), eg.zeros(50).long()))
def fractions(): return DataLoader(TensorDataset(eg.zeros(50, 1, 8, 8), eg.zeros(50)))
def text(): return "all work and no play " * 40
"""


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_data", raising=False)
    (tmp_path / "own_data.py").write_text(LOADERS)


# -- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["train", "memory", "explain", "finetune"])
def test_two_sizes_exclude_each_other(run: Run, command: str) -> None:
    for flags in (("--tiny", "--small"), ("--large", "--tiny")):
        result = run(command, *flags)
        assert result.exit_code == 2, result.output
        assert "exclude each other" in result.output
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("train", "runs/nope", "--resume"), ("train", "nope", "--resume"), ("train", "runs/nope"),
        ("memory", "runs/nope"), ("explain", "runs/nope"), ("sample", "runs/nope"),
        ("report", "runs/nope"), ("chat", "runs/nope"), ("serve", "runs/nope"),
    ],
)  # fmt: skip
def test_a_missing_run_is_named_as_such(run: Run, words: tuple[str, ...]) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert "run" in result.output.replace("runs/nope", "") and words[1] in result.output
    assert "there is no task" not in result.output


def test_existing_runs_are_listed_for_a_missing_one(run: Run) -> None:
    for name in ("a", "b"):
        Path("runs", name).mkdir(parents=True)
        Path("runs", name, "config.toml").touch()
    output = run("train", "runs/c", "--resume").output
    assert "there is no run runs/c; there are runs/a, runs/b" in output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("memory", "--html", "no/plan.html"), "there is no folder no"),
        (("memory", "--html", "folder"), "it is a folder"),
        (("explain", "--html", "no/x.html"), "there is no folder no"),
        (("explain", "--json", "own_data.py/x.json"), "there is no folder own_data.py"),
        (("sample", "runs/nope", "--output", "no/x.png"), "there is no folder no"),
        (("train", "--output", "own_data.py"), "is a file"),
        (("train", "--output", "own_data.py/run"), "is a file"),
        # A virtual file system takes no files, whatever its permissions say.
        (("train", "--output", "/proc/run"), "/proc is not writable"),
        (("demo", "--output", "/proc/run"), "/proc is not writable"),
        (("demo", "--output", "own_data.py/x"), "is a file"),
        (("memory", "--html", "/proc/x.html"), "/proc is not writable"),
        (("explain", "--json", "/proc/x.json"), "/proc is not writable"),
        (("sample", "runs/nope", "--output", "/proc/x.png"), "/proc is not writable"),
    ],
)
def test_bad_outputs_are_told_before_work(
    run: Run, words: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("work has begun")

    Path("folder").mkdir()
    monkeypatch.setattr("evergrad.cli.memory.plan_training", work)
    monkeypatch.setattr("evergrad.cli.explain.explanations", work)
    monkeypatch.setattr("evergrad.train.loop.Trainer.__init__", work)
    monkeypatch.setattr("evergrad.cli.demo.Demo.run", work)
    result = run(*words)
    assert (result.exit_code, message in result.output) == (2, True), result.output


@pytest.mark.parametrize("command", ["serve", "chat"])
@pytest.mark.parametrize("port", ["-1", "65536"])
def test_a_port_is_checked_before_work(run: Run, command: str, port: str) -> None:
    result = run(command, "runs/nope", "--port", port)
    assert result.exit_code == 2 and "0<=x<=65535" in result.output


# -- help ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_word_of_help(name: str) -> None:
    command = CommandList().get_command(click.Context(click.Command("x")), name)
    assert command is not None
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name


@pytest.mark.parametrize("task", TASKS)
def test_every_option_of_a_task_has_a_word_of_help(task: str) -> None:
    for rows in options_help(preset(task)).values():
        assert [key for key, meaning in rows if meaning.startswith("[")] == []


# -- the memory table ---------------------------------------------------------------------------


def table_of(path: Path) -> dict[str, dict[str, int | None]]:
    found: dict[str, dict[str, int | None]] = json.loads((path / "memory.json").read_text())
    return found


def in_another_process(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "evergrad", *words], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("every", ["0", "2", "4"])
def test_what_a_sampler_keeps_is_planned(every: str) -> None:
    words = (*TINY, "--steps", "4", "--sample-every", every, "--evaluate-every", "0")
    output = in_another_process("train", *words, "--output", "run")
    table = table_of(Path("run"))
    for name, row in table.items():
        if name != "gradients" and row["planned"] is not None:
            assert row["measured"] == row["planned"], name
    assert (table["samples"]["planned"] or 0) > 0 or every != "2"
    assert (table["at the end"]["measured"] or 0) <= (table["peak"]["measured"] or 0)
    assert "(best)" in output and "the sum" in output


def test_the_table_adds_up_as_it_is_shown(run: Run) -> None:
    lines = run("memory", *TINY).output.splitlines()
    rows = [line for line in lines[2:] if line.startswith("  ")][:7]
    *parts, peak = [line.split("  ") for line in map(str.strip, rows)]
    numbers = [next(word.strip() for word in part[1:] if word.strip()) for part in parts]
    added = sum(int(n.replace(",", "")) for n in numbers if not n.startswith("("))
    total = next(word for word in peak[1:] if word.strip())
    assert peak[0] == "peak" and added == int(total.replace(",", "")), rows
    assert sum(number.startswith("(") for number in numbers) == 1  # gradients, within activations


# -- checkpoints --------------------------------------------------------------------------------


def test_no_older_checkpoints_are_claimed_where_there_are_none(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("evergrad.train.checkpoint.CheckpointStore.write", full)
    result = run("train", *TINY, "--steps", "2", "--eager")
    assert "could not be saved" in result.output
    assert "older checkpoints are kept" not in result.output
    assert "there is no other yet" in result.output
    assert result.exit_code == 4


# -- data from a function -------------------------------------------------------------------------


@pytest.mark.parametrize("function", ["one", "two"])
def test_data_may_come_from_a_function_of_the_users(run: Run, function: str) -> None:
    words = ("--data", f"own_data:{function}", "--steps", "3", "--eager", "--batch", "8")
    first = run("train", "lenet", "--tiny", *words, "--output", "run")
    assert first.exit_code == 0, first.output
    assert "accuracy" in first.output
    assert run("train", "run", "--resume", "--steps", "5").exit_code == 2  # the file names code
    again = run("train", "run", "--resume", "--steps", "5", "--data", f"own_data:{function}")
    assert again.exit_code == 0, again.output
    assert "going on after step 3 of 5" in again.output


def test_a_text_may_come_from_a_function(run: Run) -> None:
    result = run("train", *TINY, "--steps", "2", "--eager", "--data", "own_data:text")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("task", "function", "message"),
    [
        ("lenet", "stream", "map-style"),
        ("lenet", "nothing", "has to give a DataLoader"),
        ("lenet", "flat", "has to be|have to be a tensor"),
        ("lenet", "fractions", "whole numbers"),
        ("lenet", "missing", "cannot be imported"),
        ("dit", "one", "takes no pictures from a function"),
        ("gpt", "nothing", "has to give a text"),
    ],
)
def test_functions_that_give_something_else_are_refused(
    run: Run, task: str, function: str, message: str
) -> None:
    result = run("train", task, "--tiny", "--data", f"own_data:{function}")
    assert result.exit_code == 2
    assert any(part in result.output for part in message.split("|")), result.output


@pytest.mark.parametrize("source", ["own_data:one", "os:getcwd", "a.b.c:d"])
def test_a_file_names_no_function(source: str) -> None:
    Path("a.toml").write_text(f'task = "lenet"\n[data]\nsource = "{source}"\n')
    with pytest.raises(UntrustedTaskError, match="the file names the function"):
        prepare(None, False, ["a.toml"])
    assert prepare(None, False, ["a.toml"], [source])[0].data.source == source
    with pytest.raises(ConfigError):
        prepare(None, False, ["a.toml"], ["own_data:other"])
    assert "own_data" not in sys.modules


# -- signals --------------------------------------------------------------------------------------


def descendants(pid: int) -> Iterator[int]:
    """Processes that a process has started, and theirs."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
        if parent == pid:
            yield int(entry.name)
            yield from descendants(int(entry.name))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc")
@pytest.mark.parametrize(
    ("words", "number"),
    [
        (("bench", "--tasks", "gpt", "--seconds", "60"), signal.SIGTERM),
        (("bench", "--peers", "--", "--workloads", "gpt_tiny", "--quick"), signal.SIGTERM),
        (("bench", "--peers", "--", "--workloads", "gpt_tiny", "--quick"), signal.SIGINT),
        (("train", "gpt", "--tiny", "--steps", "100000"), signal.SIGTERM),
    ],
)
def test_signals_leave_no_process(words: tuple[str, ...], number: int, tmp_path: Path) -> None:
    if "--peers" in words:
        words = (*words, "--peers", "evergrad compiled", "--output", str(tmp_path / "results"))
    process = subprocess.Popen(
        [sys.executable, "-m", "evergrad", *words], stdout=subprocess.PIPE, text=True,
        stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    time.sleep(2.5)
    started = list(descendants(process.pid))
    assert process.poll() is None, process.communicate()[0]
    process.send_signal(number)
    output = process.communicate(timeout=60)[0]
    assert process.returncode != 0, output
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in started) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert [pid for pid in started if Path(f"/proc/{pid}").exists()] == []
    assert "Traceback" not in output or number == signal.SIGINT
    assert list(tmp_path.rglob("*.part")) == []
