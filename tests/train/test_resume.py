"""A run that is interrupted and resumed is the run that was not, to the bit."""

from __future__ import annotations

from pathlib import Path

import pytest

import evergrad as eg
from evergrad.train.exit_codes import ExitCode
from evergrad.train.interrupts import Interrupts
from evergrad.train.loop import Trainer
from train.runs import assert_same_runs, metrics, tiny, train, trainer

pytestmark = pytest.mark.usefixtures("without_report")

VARIANTS = [
    (), ("--eager",), ("--accumulate", "3"), ("--precision", "bfloat16"), ("--ema", "0"),
    ("--log-every", "3", "--checkpoint-every", "4"),
]  # fmt: skip


def stopping_after(subject: Trainer, step: int, code: ExitCode) -> ExitCode:
    """Run until a step has ended, in which a signal came."""
    done = subject._train

    def train_until(interrupts: Interrupts) -> ExitCode:
        measured = subject.meter.time

        def time(work: object) -> object:
            if subject.state.step == step - 1:
                interrupts.received = code
            return measured(work)

        subject.meter.time = time
        return done(interrupts)

    subject._train = train_until
    return subject.run()


@pytest.mark.parametrize("words", VARIANTS, ids=lambda words: " ".join(words) or "default")
def test_interrupted_run_equals_whole_run(tmp_path: Path, words: tuple[str, ...]) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert train(tiny(whole, *words)) == ExitCode.DONE
    for step in (1, 7, 10):
        found = stopping_after(trainer(tiny(parts, *words)), step, ExitCode.INTERRUPTED)
        assert found == ExitCode.INTERRUPTED
    assert train(tiny(parts, *words)) == ExitCode.DONE
    assert_same_runs(whole, parts, 20)


def test_resumed_run_gets_what_its_task_kept(tmp_path: Path) -> None:
    config = tiny(tmp_path)
    assert not trainer_and_release(config).task.was_restored
    train(config)
    assert trainer_and_release(config).task.was_restored


def trainer_and_release(config: object) -> Trainer:
    subject = trainer(config)
    subject.directory.release()
    return subject


def test_each_step_stands_once_in_the_metrics(tmp_path: Path) -> None:
    stopping_after(trainer(tiny(tmp_path)), 8, ExitCode.TERMINATED)
    with (tmp_path / "metrics.jsonl").open("a") as file:  # as if killed three lines later
        file.write('{"step": 9, "loss": 1.0}\n{"step": 10, "loss": 1.0}\n{"step": 1')
    train(tiny(tmp_path))
    steps = [line["step"] for line in metrics(tmp_path) if "loss" in line]
    assert steps == list(range(1, 21))


def test_more_steps_can_be_asked_for(tmp_path: Path) -> None:
    train(tiny(tmp_path))
    assert train(tiny(tmp_path, "--steps", "25")) == ExitCode.DONE
    assert [line["step"] for line in metrics(tmp_path) if "loss" in line][-1] == 25


def test_finished_run_has_nothing_left_to_do(tmp_path: Path) -> None:
    train(tiny(tmp_path))
    before = metrics(tmp_path)
    assert train(tiny(tmp_path)) == ExitCode.DONE
    assert metrics(tmp_path) == before


def test_seed_decides_everything(tmp_path: Path) -> None:
    for name, seed in (("a", "5"), ("b", "5"), ("c", "6")):
        train(tiny(tmp_path / name, "--seed", seed))
    assert_same_runs(tmp_path / "a", tmp_path / "b", 20)
    assert metrics(tmp_path / "a") != metrics(tmp_path / "c")


def test_threads_do_not_change_results(tmp_path: Path) -> None:
    before = eg.get_num_threads()
    try:
        train(tiny(tmp_path / "one", "--threads", "1"))
        train(tiny(tmp_path / "two", "--threads", "2"))
    finally:
        eg.set_num_threads(before)
    assert_same_runs(tmp_path / "one", tmp_path / "two", 20)
