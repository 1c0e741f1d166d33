"""The step: schedule, accumulation, clipping, running means, precision, eager and compiled."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import nn
from evergrad.core.rng.default_generator import using_generator
from evergrad.train.config import OptimizerConfig
from evergrad.train.state import TrainingState
from evergrad.train.step import StepResult, learning_rate, make_optimizer, mean_weight
from train.runs import metrics, tiny, train
from train.tiny_task import TinyTask

pytestmark = pytest.mark.usefixtures("without_report")


def state_after(steps: int, *words: str) -> tuple[TrainingState, list[StepResult]]:
    """A state some steps later, and what the steps gave."""
    config = tiny(Path("unused"), *words)
    state = TrainingState(config, TinyTask(config))
    step = state.training_step()
    with using_generator(state.generator):
        return state, [step(number) for number in range(steps)]


def weights(state: TrainingState) -> list[Any]:
    return [p.detach().numpy().copy() for p in state.model.parameters()]


def test_schedule() -> None:
    options = OptimizerConfig(lr=2.0, warmup=4, final=0.25)
    rates = [learning_rate(options, step, 12) for step in range(13)]
    assert rates[:5] == [0.5, 1.0, 1.5, 2.0, 2.0]
    assert rates[8] == pytest.approx(2.0 * (0.25 + 0.75 / 2))
    assert rates[12] == pytest.approx(0.5)
    assert rates[4:] == sorted(rates[4:], reverse=True)
    assert learning_rate(options, 100, 12) == pytest.approx(0.5)


def test_eager_and_compiled_agree_to_rounding(tmp_path: Path) -> None:
    for words in ((), ("--accumulate", "2")):
        _, compiled = state_after(10, *words)
        _, eager = state_after(10, *words, "--eager")
        np.testing.assert_allclose(compiled, eager, rtol=2e-5)


def test_accumulated_batches_make_the_step_of_one_large_batch() -> None:
    """With the same examples, and without dropout and statistics of batches."""

    class Plain(TinyTask):
        def model(self) -> nn.Module:
            return nn.Linear(4, 1)

    class Joined(Plain):
        def batch(self, number: int) -> Any:
            parts = [Plain.batch(self, 3 * number + i) for i in range(3)]
            return tuple(eg.cat(column) for column in zip(*parts, strict=True))

    def after_five(task_type: type[TinyTask], *words: str) -> tuple[list[Any], Any]:
        config = tiny(Path("unused"), *words)
        state = TrainingState(config, task_type(config))
        step = state.training_step()
        found = [step(number) for number in range(5)]
        return weights(state), found

    one, one_results = after_five(Plain, "--accumulate", "3")
    other, other_results = after_five(Joined)
    np.testing.assert_allclose(one_results, other_results, rtol=1e-5)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_clipping_limits_the_update() -> None:
    """With the second moment at 1 (beta 0), AdamW's step depends on the ratio of gradients only;
    so the first moment alone tells: it is the clipped gradient."""
    state, results = state_after(1, "--clip", "1e-3", "--betas", "0,0.5")
    moments = [state.optimizer.state[p]["exp_avg"].numpy() for p in state.model.parameters()]
    norm = math.sqrt(sum(float((m.astype(np.float64) ** 2).sum()) for m in moments))
    assert results[0].norm > 1e-3
    assert norm == pytest.approx(1e-3, rel=1e-2)


def test_no_clipping() -> None:
    state, results = state_after(1, "--clip", "0", "--betas", "0,0.5")
    moments = [state.optimizer.state[p]["exp_avg"].numpy() for p in state.model.parameters()]
    norm = math.sqrt(sum(float((m.astype(np.float64) ** 2).sum()) for m in moments))
    assert norm == pytest.approx(results[0].norm, rel=1e-5)


def test_running_mean_of_the_weights() -> None:
    decay = 0.5
    config = tiny(Path("unused"), "--ema", str(decay))
    state = TrainingState(config, TinyTask(config))
    step = state.training_step()
    expected = weights(state)
    with using_generator(state.generator):
        for number in range(6):
            step(number)
            share = mean_weight(decay, number)
            expected = [
                mean + share * (weight - mean)
                for mean, weight in zip(expected, weights(state), strict=True)
            ]
    assert state.averaged is not None
    for mean, wanted in zip(state.averaged.parameters(), expected, strict=True):
        np.testing.assert_allclose(mean.detach().numpy(), wanted, rtol=1e-5, atol=1e-7)


def test_evaluation_uses_the_running_mean_and_the_newest_statistics() -> None:
    state, _ = state_after(5, "--ema", "0.9")
    with state.evaluated_model() as model:
        assert model is state.averaged
        assert not model.training
        for own, newest in zip(model.buffers(), state.model.buffers(), strict=True):
            np.testing.assert_array_equal(own.numpy(), newest.numpy())
    assert state.model.training


def test_evaluation_does_not_touch_the_stream_of_training() -> None:
    state, _ = state_after(3)
    with using_generator(state.generator):
        before = state.generator.get_state().tolist()
        with state.evaluated_model():
            first = eg.rand(3).tolist()
        with state.evaluated_model():
            assert eg.rand(3).tolist() == first
        assert state.generator.get_state().tolist() == before


def test_only_matrices_are_decayed() -> None:
    config = tiny(Path("unused"))
    model = TinyTask(config).model()
    groups = make_optimizer(model, config.optimizer).param_groups
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]
    assert [all(p.ndim >= 2 for p in group["params"]) for group in groups] == [True, False]
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))


def test_bfloat16_keeps_weights_in_float32() -> None:
    state, results = state_after(5, "--precision", "bfloat16")
    assert {p.dtype for p in state.model.parameters()} == {eg.float32}
    _, exact = state_after(5)
    assert results != exact
    np.testing.assert_allclose([r.loss for r in results], [r.loss for r in exact], rtol=0.05)


def test_early_stopping(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A learning rate that destroys the model stops the run after two bad evaluations."""
    words = ("--steps", "500", "--lr", "30", "--warmup", "0", "--patience", "2", "--ema", "0")
    train(tiny(tmp_path, *words))
    losses = [line["evaluation"]["loss"] for line in metrics(tmp_path) if "evaluation" in line]
    best = losses.index(min(losses))
    assert len(losses) == best + 3 < 100
    assert "stopped early" in capsys.readouterr().out
