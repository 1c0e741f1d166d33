"""Tasks of pictures: epochs, scaling, what is shown, and models that do not fit the data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import nn
from evergrad.models.diffusion import DDPM
from evergrad.train.config import ConfigError, RunConfig, override, preset
from evergrad.train.tasks import pictures
from evergrad.train.tasks.diffusion import DiTTask
from evergrad.train.tasks.images import RIGHT, WRONG, LeNetTask, MLPTask, ViTTask


@pytest.fixture(autouse=True)
def few_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "GENERATED", 120)


def small(name: str, *words: str) -> RunConfig:
    return override(preset(name, "tiny"), words)


def bytes_of(task: Any, batch: tuple[Any, ...]) -> Iterator[bytes]:
    """The pictures of a batch as they are in their set."""
    mean, deviation = task.pictures.mean_and_deviation()
    for picture in batch[0].numpy():
        yield np.round((picture * deviation + mean) * 255).astype(np.uint8).tobytes()


def test_an_epoch_shows_every_picture_once() -> None:
    task = MLPTask(small("mlp", "--batch", "9"))  # 108 pictures to train with
    everything = sorted(picture.tobytes() for picture in task.pictures.train.pictures)
    epochs = [
        [picture for number in range(12) for picture in bytes_of(task, task.batch(number + start))]
        for start in (0, 12)
    ]
    assert sorted(epochs[0]) == sorted(epochs[1]) == everything
    assert epochs[0] != epochs[1] != everything


def test_labels_stay_with_their_pictures() -> None:
    task = MLPTask(small("mlp", "--batch", "9"))
    train = task.pictures.train
    labels = dict(zip(map(np.ndarray.tobytes, train.pictures), train.labels.tolist(), strict=True))
    for number in (0, 5, 40):
        batch = task.batch(number)
        assert [labels[picture] for picture in bytes_of(task, batch)] == batch[1].tolist()


def test_inputs_are_around_zero_with_a_deviation_of_one() -> None:
    task = MLPTask(small("mlp", "--batch", "108"))
    images, _ = task.batch(0)
    assert images.dtype is eg.float32
    assert abs(images.mean().item()) < 1e-4 and images.std().item() == pytest.approx(1, abs=1e-3)


def test_all_held_out_pictures_are_evaluated() -> None:
    task = MLPTask(small("mlp", "--batch", "5", "--evaluate-batches", "9"))
    batches = task.held_out_batches()
    assert [len(labels) for _, labels in batches] == [5, 5, 2]
    assert [label for _, labels in batches for label in labels.tolist()] == (
        task.pictures.held_out.labels.tolist()
    )


class Stubborn(nn.Module):
    """Says the same class whatever it is shown."""

    def forward(self, x: eg.Tensor) -> eg.Tensor:
        return eg.nn.functional.one_hot(eg.full((len(x),), 3), 10).float()


def test_accuracy_is_the_share_of_right_answers() -> None:
    task = MLPTask(small("mlp"))
    expected = (task.pictures.held_out.labels == 3).mean()
    assert task.evaluate(Stubborn())["accuracy"] == pytest.approx(expected)


def test_frames_tell_right_from_wrong() -> None:
    task = LeNetTask(small("lenet"))
    image = task.sample(Stubborn(), 0).image
    assert image is not None
    found = {tuple(colour) for colour in image.reshape(-1, 3).tolist()}
    for colour in (RIGHT, WRONG):
        assert tuple(round(255 * part) for part in colour) in found


def test_models_take_their_sizes_from_the_pictures() -> None:
    lenet: Any = LeNetTask(small("lenet", "--data", "shapes")).model()
    assert (lenet.config.classes, lenet.config.channels, lenet.config.size) == (16, 3, 28)
    mlp: Any = MLPTask(small("mlp")).model()
    assert (mlp.config.inputs, mlp.config.classes) == (784, 10)
    vit: Any = ViTTask(small("vit", "--data", "digits")).model()
    assert (vit.config.size, vit.config.channels) == (28, 1)


def test_options_that_the_data_decides_cannot_be_set() -> None:
    with pytest.raises(ConfigError, match="no option 'classes'"):
        small("lenet", "--classes", "5")


def test_a_model_that_does_not_fit_the_pictures() -> None:
    task = ViTTask(small("vit", "--patch", "8", "--data", "digits"))
    with pytest.raises(ConfigError, match=r"does not fit the pictures: patch \(8\)"):
        task.model()


def test_a_batch_larger_than_the_set() -> None:
    with pytest.raises(ConfigError, match="a batch of 500 is more than all 108 pictures"):
        MLPTask(small("mlp", "--batch", "500")).batch(0)


def test_missing_pictures_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="neither the files of MNIST"):
        LeNetTask(small("lenet", "--data", str(tmp_path)))


# -- diffusion ------------------------------------------------------------------------------------


def test_pictures_for_diffusion_go_from_minus_one_to_one() -> None:
    task = DiTTask(small("dit", "--batch", "108", "--size", "16"))
    images, labels = task.batch(0)
    assert tuple(images.shape) == (108, 3, 16, 16) and tuple(labels.shape) == (108,)
    assert -1 <= images.min().item() < -0.85 and 0.7 < images.max().item() <= 1


def test_diffusion_samples_show_each_class_in_its_column() -> None:
    task = DiTTask(small("dit", "--sampling-steps", "1", "--layers", "1"))
    image = task.sample(task.model(), 0).image
    assert image is not None
    scale = image.shape[0] // 37  # four pictures of 8 and five edges
    assert image.shape == (37 * scale, (16 * 9 + 1) * scale, 3)


def test_the_process_is_an_option() -> None:
    task = DiTTask(small("dit", "--process", "ddpm", "--layers", "1", "--sampling-steps", "2"))
    assert isinstance(task.process, DDPM)
    model = task.model()
    assert task.evaluate(model) == task.evaluate(model)
    assert task.evaluate(model)["loss"] == pytest.approx(1, abs=0.05)  # it predicts no noise yet
    assert task.sample(model, 0).image is not None
    with pytest.raises(ConfigError, match="process cannot be 'flaw'; did you mean 'flow'"):
        small("dit", "--process", "flaw")


def test_sizes_of_pictures_and_model_have_to_agree() -> None:
    with pytest.raises(ConfigError, match="28 by 28 pixels, but size is 8: add --size 28"):
        DiTTask(small("dit", "--data", "digits"))
    with pytest.raises(ConfigError, match="sampling_steps is 0"):
        small("dit", "--sampling-steps", "0")
