"""``evergrad check``: it passes here, and it finds what is wrong where something is."""

from __future__ import annotations

import importlib
import json
import threading
from typing import Any

import numpy as np
import pytest

import evergrad
from evergrad.autograd import Function
from evergrad.errors import SteadyStateError
from evergrad.testing import training
from evergrad.testing.samples import Sample
from evergrad.testing.samples.table import all_samples
from evergrad.testing.subject import CheckError

from .conftest import Run

pytest.importorskip("click", reason="click is not installed: pip install 'evergrad[app]'")
check = importlib.import_module("evergrad.cli.check")
ROWS = ("exp", "mul", "sum", "argmax")


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Sample]]:
    """Let the command check a few rows alone; gives them, to add to."""
    rows = {name: all_samples()[name][:2] for name in ROWS}
    monkeypatch.setattr(check, "all_samples", lambda: rows)
    monkeypatch.setattr(check, "FEW_STEPS", 4)
    monkeypatch.setattr(check, "MANY_STEPS", 8)
    return rows


def wrong_sample(call: Any, reference: Any) -> Sample:
    """A sample entered for exp, which may not be that."""
    point = np.array([0.5, 1.0, 1.5])
    return Sample("exp", call, (point,), reference, False, True, (), 1e-10, "wrong")


def test_everything_is_right_here(run: Run, few_rows: object) -> None:
    result = run("check")
    assert result.exit_code == 0, result.stdout
    for words in ("gradients", "second derivatives", "compiled", "threads", "live bytes"):
        assert words in result.stdout
    assert "this installation is right" in result.stdout


def test_quick_takes_a_sample_of_each_row_of_the_table(run: Run, few_rows: object) -> None:
    result = run("check", "--quick", "--json")
    data = json.loads(result.stdout)
    assert result.exit_code == 0 and data["ok"]
    compiled = next(s for s in data["stages"] if s["title"].startswith("compiled values"))
    assert compiled["checked"] == len(ROWS)
    assert not any("second" in stage["title"] for stage in data["stages"])


def test_the_whole_check_looks_at_every_sample_of_the_table() -> None:
    samples = [sample for row in all_samples().values() for sample in row]
    stages = {stage.title: stage.jobs for stage in check.stages(quick=False)}
    leaks = stages["nothing left after derivatives up to the third"]
    assert {job.name for job in leaks} == {str(sample) for sample in samples}
    quick = {stage.title: stage.jobs for stage in check.stages(quick=True)}
    assert len(quick["compiled values against eager"]) == len(all_samples())


def test_a_wrong_value_is_found(run: Run, few_rows: dict[str, list[Sample]]) -> None:
    few_rows["exp"] = [wrong_sample(lambda ns, x: ns.exp(x), lambda x: np.exp(x) + 1e-6)]
    result = run("check", "--quick")
    assert result.exit_code == 1
    assert "exp-wrong (values against NumPy)" in result.stdout
    assert "do not trust results of this machine" in result.stdout


class WrongExp(Function):
    """The derivative is off by one part in a thousand."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (y,) = ctx.saved_tensors
        return grad * y * 1.001


def test_a_wrong_gradient_is_found(run: Run, few_rows: dict[str, list[Sample]]) -> None:
    few_rows["exp"] = [wrong_sample(lambda ns, x: WrongExp.apply(x), None)]
    result = run("check", "--quick", "--json")
    assert result.exit_code == 1
    failures = [f for stage in json.loads(result.stdout)["stages"] for f in stage["failures"]]
    assert [f["job"] for f in failures] == ["exp-wrong"]
    assert "the gradient by input 0" in failures[0]["message"]


def test_a_check_that_breaks_is_a_failure_and_not_the_end(
    run: Run, few_rows: dict[str, list[Sample]]
) -> None:
    few_rows["exp"] = [wrong_sample(lambda ns, x: ns.no_such_function(x), None)]
    result = run("check", "--quick", "--json")
    stages = json.loads(result.stdout)["stages"]
    assert result.exit_code == 1
    assert any("UnknownNameError" in f["message"] for s in stages for f in s["failures"])
    assert stages[-1]["failures"] == []


# -- the checks of whole trainings ---------------------------------------------------------------


def test_a_compiler_that_trains_differently_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile(step: Any) -> Any:
        return lambda x, y: step(x * 1.000001, y)

    monkeypatch.setattr(evergrad, "compile", compile, raising=False)
    with pytest.raises(CheckError, match="the losses after 5 compiled steps"):
        training.check_compiled_training(steps=5)


def test_threads_that_disturb_each_other_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def start_and_run(seed: int, steps: int, compiled: bool) -> list[Any]:
        is_alone = threading.current_thread() is threading.main_thread()
        return [np.array([1.0 if is_alone or seed == 0 else np.nextafter(1.0, 2)])]

    monkeypatch.setattr(training, "start_and_run", start_and_run)
    with pytest.raises(CheckError, match="thread 1"):
        training.check_threads(compiled=False, steps=1)


def test_a_step_that_leaves_memory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []
    start = training.start_training

    def start_leaking(seed: int, compiled: bool) -> training.Training:
        made = start(seed, compiled)
        step = made.step
        made.step = lambda x, y: (kept.append(evergrad.ones(3)), step(x, y))[1]
        return made

    monkeypatch.setattr(training, "start_training", start_leaking)
    with pytest.raises(SteadyStateError, match="12 bytes"):
        training.check_steady(compiled=False, steps=5)
