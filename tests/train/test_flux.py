"""``evergrad train flux``: prompts, LoRA on a trained one, folders of pictures, what is refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evergrad.core.rng.default_generator import using_generator
from evergrad.models.lora import adapted_layers
from evergrad.train.checkpoint import CheckpointError, CheckpointStore, read_checkpoint
from evergrad.train.config import ConfigError, override, preset, to_toml
from evergrad.train.state import TrainingState
from evergrad.train.task import task_class
from evergrad.train.tasks import flux
from evergrad.train.tasks.scenes import scenes


@pytest.fixture(autouse=True)
def few_scenes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flux, "GENERATED", 60)


def made(*words: str) -> Any:
    config = override(preset("flux", "tiny"), ["--batch", "4", "--sampling-steps", "2", *words])
    return task_class("flux")(config, None)


def saved(state: TrainingState, folder: Path) -> str:
    content = {**state.capture(), "config": to_toml(state.config), "metrics_offset": 0}
    CheckpointStore(folder / "checkpoints", keep=1).write(content, best=False)
    return str(folder)


def test_a_new_colour_is_learned_by_an_adapter_alone(tmp_path: Path) -> None:
    first = made()
    base = saved(TrainingState(first.config, first), tmp_path / "base")
    task = made("--init-from", base, "--method", "lora", "--data", "purple", "--lr", "1e-2",
                "--ema", "0", "--warmup", "0", "--steps", "400")  # fmt: skip
    assert len(task.parts[0].captions) == 20
    assert all("purple" in caption for caption in task.parts[0].captions)
    state = TrainingState(task.config, task)
    frozen = {n: p.numpy().copy() for n, p in state.model.named_parameters() if "lora" not in n}
    batch = task.batch(0)
    task.batch = lambda number: batch
    step = state.training_step()
    with using_generator(state.generator):
        losses = [step(number).loss for number in range(60)]
    assert np.mean(losses[-10:]) < np.mean(losses[:10])
    for name, parameter in state.model.named_parameters():
        if name in frozen:
            np.testing.assert_array_equal(parameter.numpy(), frozen[name])
    del task.batch
    again = read_checkpoint(Path(saved(state, tmp_path / "purple")))
    model = again.model(again.task())
    assert list(adapted_layers(model))
    picture = task.sample_prompts(model, ["a purple circle"] * 2, 0).image
    np.testing.assert_array_equal(
        picture, task.sample_prompts(state.model, ["a purple circle"] * 2, 0).image
    )


def test_a_folder_of_pictures(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="pillow is not installed")
    pictures, captions = scenes(5, 8, "test")
    lines = []
    for number, (picture, caption) in enumerate(zip(pictures, captions, strict=True)):
        image.fromarray(picture.transpose(1, 2, 0)).save(tmp_path / f"{number}.png")
        lines.append(json.dumps({"file": f"{number}.png", "caption": caption}))
    (tmp_path / "captions.jsonl").write_text("\n".join(lines))
    task = made("--data", str(tmp_path), "--held-out", "0.4")
    assert [len(part.captions) for part in task.parts] == [3, 2]
    np.testing.assert_array_equal(task.parts[0].pictures, pictures[:3])
    with pytest.raises(ConfigError, match=r"not \(3, 16, 16\)"):
        _ = made("--data", str(tmp_path), "--size", "16").parts


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"captions\.jsonl"):
        _ = made("--data", str(tmp_path)).parts
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        made("--init-from", str(tmp_path))
    with pytest.raises(ConfigError, match="at most 12 words"):
        made().words(["a " * 13])
    with pytest.raises(ConfigError, match="multiple of 4"):
        made("--size", "10")


def test_a_model_that_goes_on_keeps_its_sizes(tmp_path: Path) -> None:
    first = made("--width", "16", "--heads", "1")
    base = saved(TrainingState(first.config, first), tmp_path / "base")
    task = made("--init-from", base)
    assert task.sizes == first.sizes
    assert dataclasses.asdict(task.sizes)["width"] == 16
