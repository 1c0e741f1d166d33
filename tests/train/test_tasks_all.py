"""What holds for every task: presets, numbered batches, a loss that falls, samples, restoring."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evergrad.core.rng.default_generator import using_generator
from evergrad.train.checkpoint import CheckpointStore
from evergrad.train.config import PRESETS, RunConfig, override, preset, read_config, to_toml
from evergrad.train.state import TrainingState
from evergrad.train.task import TASKS, Sample, Task, task_class
from evergrad.train.tasks import images, pictures

# Small enough for a test: what differs from the tiny preset.
LESS = {
    "gpt": "--layers 1 --width 16 --context 16 --batch 8 --lr 1e-2",
    "lstm": "--width 16 --context 8 --batch 8 --lr 3e-2",
    "lenet": "--batch 16",
    "mlp": "--width 16 --batch 16 --lr 1e-2",
    "vit": "--layers 1 --width 16 --batch 16 --lr 1e-2",
    "resnet": "--batch 4",
    "dit": "--layers 1 --width 16 --batch 8 --lr 1e-2 --sampling-steps 2",
    "flux": "--batch 8 --sampling-steps 2",
    "chat": "--context 64 --batch 2 --lr 1e-2",
    "dpo": "--context 64 --batch 2 --lr 1e-2",
}
FINE_TUNED = ("chat", "dpo")
STEPS = {"lenet": 16, "resnet": 6}


@pytest.fixture(autouse=True, scope="module")
def few_pictures() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "GENERATED", 400)
        patch.setattr(images, "SAMPLE_COUNT", 9)
        yield


@cache
def pretrained() -> str:
    """The folder of a run with the small GPT, for tasks that begin with one."""
    folder = Path(tempfile.mkdtemp())
    config = small_config("gpt")
    state = TrainingState(config, make("gpt", config))
    content = {**state.capture(), "config": to_toml(config), "metrics_offset": 0}
    CheckpointStore(folder / "checkpoints", keep=1).write(content, best=False)
    return str(folder)


@pytest.fixture(autouse=True, scope="module")
def no_folder_left() -> Iterator[None]:
    yield
    if pretrained.cache_info().currsize:
        shutil.rmtree(pretrained())


def small_config(name: str, *more: str) -> RunConfig:
    words = f"{LESS[name]} --warmup 0 --evaluate-batches 2".split()
    if name in FINE_TUNED:
        words += ["--init-from", pretrained()]
    return override(preset(name, "tiny"), [*words, *more])


def make(name: str, config: RunConfig, extras: dict[str, Any] | None = None) -> Task:
    return task_class(name)(config, extras)


@dataclasses.dataclass
class Trained:
    """A task and what a few compiled steps on one and the same batch made of its model."""

    task: Task
    state: TrainingState
    losses: list[float]

    def judged(self, function: Callable[[Any], Any]) -> Any:
        with self.state.evaluated_model() as model:
            return function(model)


@cache
def trained(name: str) -> Trained:
    count = STEPS.get(name, 24)
    config = small_config(name, "--steps", str(10 * count))
    task = make(name, config)
    state = TrainingState(config, task)
    first = task.batch(0)
    task.batch = lambda number: first  # type: ignore[method-assign]
    step = state.training_step()
    with using_generator(state.generator):
        losses = [step(number).loss for number in range(count)]
    del task.batch
    return Trained(task, state, losses)


def values(batch: tuple[Any, ...]) -> list[np.ndarray]:
    return [tensor.numpy() for tensor in batch]


def same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return all(map(np.array_equal, values(one), values(other)))


@pytest.mark.parametrize("name", TASKS)
def test_presets_of_every_size(name: str, tmp_path: Path) -> None:
    kind = task_class(name)
    assert kind.name == name and kind.unit in ("tokens", "images")
    found = kind.presets()
    assert tuple(found) == PRESETS
    for config in found.values():
        assert config.task == name
        options = {field.name for field in dataclasses.fields(config.model)}
        assert kind.set_by_data <= options
        (tmp_path / "config.toml").write_text(to_toml(config))
        assert read_config(tmp_path / "config.toml") == config


@pytest.mark.parametrize("name", TASKS)
def test_batches_follow_from_seed_and_number_alone(name: str) -> None:
    config = small_config(name)
    task, again = make(name, config), make(name, config)
    for number in (0, 7, 1000):
        again.batch(number + 3)
        assert same(task.batch(number), again.batch(number))
    assert not same(task.batch(0), task.batch(1))
    other = make(name, dataclasses.replace(config, seed=1))
    assert not same(task.batch(0), other.batch(0))


@pytest.mark.parametrize("name", TASKS)
def test_the_loss_falls_in_a_few_compiled_steps(name: str) -> None:
    losses = trained(name).losses
    assert np.isfinite(losses).all()
    assert np.mean(losses[-3:]) < 0.85 * np.mean(losses[:3])


@pytest.mark.parametrize("name", TASKS)
def test_evaluations_are_repeatable(name: str) -> None:
    run = trained(name)
    found = run.judged(run.task.evaluate)
    assert found == run.judged(run.task.evaluate)
    assert 0 < found["loss"] < 20
    assert ("accuracy" in found) == (name in ("lenet", "mlp", "resnet", "vit", "dpo"))


@pytest.mark.parametrize("name", TASKS)
def test_samples_follow_from_their_seed(name: str) -> None:
    run = trained(name)
    first, again, other = (
        run.judged(lambda model, seed=seed: run.task.sample(model, seed)) for seed in (1, 1, 2)
    )
    assert isinstance(first, Sample)
    if first.text is not None:
        assert first.text == again.text != other.text
    else:
        assert first.image.ndim == 3 and first.image.shape[2] == 3 and first.image.dtype == np.uint8
        assert np.array_equal(first.image, again.image)
        assert not np.array_equal(first.image, other.image)


@pytest.mark.parametrize("name", TASKS)
def test_extras_restore_a_task_whose_data_is_gone(name: str) -> None:
    run = trained(name)
    config = override(run.task.config, ["--data", "a folder that is gone"])
    again = make(name, config, json.loads(json.dumps(run.task.extras())))
    assert again.extras() == run.task.extras()
    again.model().load_state_dict(run.state.model.state_dict())


@pytest.mark.parametrize("name", TASKS)
def test_units_are_counted(name: str) -> None:
    task = trained(name).task
    batch = task.batch(0)
    expected = batch[0].numel() if task.unit == "tokens" else len(batch[0])
    assert task.units_per_batch == expected
