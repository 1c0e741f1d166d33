"""Results people know, reached with the presets of ``evergrad train``.

Each test is a whole run of some minutes.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from tests.datasets.mnist_files import ROOT, mnist_root

from evergrad.core.rng.default_generator import using_generator
from evergrad.train.config import RunConfig, override, preset
from evergrad.train.state import TrainingState
from evergrad.train.task import Task, task_class
from evergrad.train.tasks.diffusion import DiTTask
from evergrad.train.tasks.draws import draw
from evergrad.train.tasks.images import ResNetTask
from evergrad.train.tasks.shapes import CLASSES


def shakespeare() -> Path:
    """The text of tiny Shakespeare; the calling test is skipped if it is not at hand."""
    named = os.environ.get("EVERGRAD_SHAKESPEARE")
    places = [Path(named)] if named else []
    places += [ROOT / "data" / "tinyshakespeare.txt"]
    places += [ROOT.parent / "shared" / "data" / "tinyshakespeare.txt"]
    for place in places:
        if place.is_file():
            return place
    pytest.skip("tiny Shakespeare is not at hand: set EVERGRAD_SHAKESPEARE to its text file")


def train(config: RunConfig) -> tuple[Task, TrainingState, list[float]]:
    """A whole run without its files: the task, where it ended, and the loss of each step."""
    task = task_class(config.task)(config)
    state = TrainingState(config, task)
    step = state.training_step()
    with using_generator(state.generator):
        losses = [step(number).loss for number in range(config.steps)]
    return task, state, losses


def evaluation(task: Task, state: TrainingState) -> dict[str, float]:
    with state.evaluated_model() as model:
        return task.evaluate(model)


def test_gpt_learns_shakespeare() -> None:
    config = override(preset("gpt", "medium"), ["--data", str(shakespeare())])
    task, state, _ = train(config)
    assert evaluation(task, state)["loss"] < 1.60


def test_lenet_learns_mnist() -> None:
    config = override(preset("lenet", "medium"), ["--data", str(mnist_root())])
    task, state, _ = train(config)
    assert len(task.pictures.held_out) == 10_000  # type: ignore[attr-defined]
    assert config.batch * config.evaluate_batches >= 10_000
    assert evaluation(task, state)["accuracy"] >= 0.989


def test_resnet_fits_shapes_and_recognises_new_ones() -> None:
    task, state, losses = train(preset("resnet"))
    assert np.mean(losses[-20:]) < 0.05
    assert evaluation(task, state)["accuracy"] > 0.97


def test_dit_draws_the_shapes_it_is_asked_for() -> None:
    """A ResNet that knows the generated shapes recognises what the DiT draws."""
    judge, judge_state, _ = train(preset("resnet"))
    task, state, _ = train(preset("dit"))
    assert isinstance(judge, ResNetTask) and isinstance(task, DiTTask)
    asked = np.tile(np.arange(len(CLASSES)), 8)
    options = task.config.model
    with state.evaluated_model() as model:
        drawn = task.process.sample(
            model, len(asked), asked.tolist(), options.sampling_steps,
            generator=draw(0, "soak"), guidance=options.guidance,
        )  # fmt: skip
    pixels = np.clip(np.round((drawn.numpy() + 1) * 127.5), 0, 255).astype(np.uint8)
    with judge_state.evaluated_model() as model:
        answers = model(judge.scaled(pixels)).argmax(1).numpy()
    assert (answers == asked).mean() > 0.85
