"""Pictures from captions: FLUX's transformer with an autoencoder and a text encoder, in small.

With ``init_from`` a trained one is fine-tuned, whole or with LoRA: a new colour from 20 pictures.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from evergrad import config, nn
from evergrad.core.tensor import Tensor, from_array
from evergrad.datasets.images import read_image
from evergrad.models.lora import LoRAConfig, add_lora, merge_lora
from evergrad.models.painter import Painter, PainterConfig
from evergrad.train.checkpoint import read_checkpoint
from evergrad.train.config import ConfigError, OptimizerConfig, RunConfig
from evergrad.train.task import Sample, Task
from evergrad.train.tasks.draws import draw
from evergrad.train.tasks.grid import grid
from evergrad.train.tasks.scenes import VOCABULARY, Scenes, encode_caption, scenes
from evergrad.utils.bounded_read import parse_json, read_bounded

if TYPE_CHECKING:
    from evergrad.core.types import Array

PROMPTS = (
    "a red circle", "a blue square", "a yellow triangle", "a green cross",
    "a red circle left of a blue square", "a green cross above a yellow square",
    "a blue triangle right of a red cross", "a yellow circle below a green triangle",
)  # fmt: skip
GENERATED = 4000
NEW_COLOUR = "purple"
FEW = 20


@dataclass(frozen=True)
class FluxOptions(PainterConfig):
    """The model, how it is sampled, and what it begins with."""

    words: int = VOCABULARY
    sampling_steps: int = 20
    guidance: float = 3.0
    init_from: str = ""  # a run whose model is fine-tuned
    method: Literal["full", "lora"] = "full"
    rank: int = 8
    alpha: float = 16.0
    targets: str = "to_q,to_k,to_v,add_*_proj,proj_mlp,proj_out"

    def lora(self) -> LoRAConfig:
        return LoRAConfig(self.rank, self.alpha, tuple(self.targets.split(",")))


class FluxTask(Task):
    """Scenes of shapes with captions, or a folder of pictures with theirs."""

    name = "flux"
    unit = "images"
    set_by_data: ClassVar[frozenset[str]] = frozenset({"words"})

    def __init__(self, config: RunConfig, extras: dict[str, Any] | None = None) -> None:
        super().__init__(config, extras)
        self._base: Painter | None = None
        if extras is None and config.model.init_from:
            self._base = _trained(config.model.init_from)
        sizes = extras["sizes"] if extras else None
        own = {field: getattr(config.model, field) for field in PainterConfig.__dataclass_fields__}
        if self._base is not None:
            own = self._base.config.__dict__
        self.sizes: PainterConfig = PainterConfig(**(sizes or own))

    @property
    def units_per_batch(self) -> int:
        return self.config.batch

    def model(self) -> nn.Module:
        model = Painter(self.sizes)
        if self._base is not None:
            model.load_state_dict(self._base.state_dict())
            self._base = None  # later models are restored from checkpoints
        if self.config.model.method == "lora":
            add_lora(model, self.config.model.lora())
        return model

    # -- data ---------------------------------------------------------------------------------

    @cached_property
    def parts(self) -> tuple[Scenes, Scenes]:
        """Scenes to train with, and held-out ones."""
        source, size = self.config.data.source, self.sizes.size
        if source in ("", "scenes"):
            held = max(1, round(GENERATED * self.config.data.held_out))
            return scenes(GENERATED - held, size, "train"), scenes(held, size, "held out")
        if source == NEW_COLOUR:
            new = (NEW_COLOUR,)
            return scenes(FEW, size, "few", new), scenes(FEW, size, "few held out", new)
        found = _from_folder(Path(source), size)
        kept = max(1, round(len(found.captions) * (1 - self.config.data.held_out)))
        cut = [
            Scenes(found.pictures[p], found.captions[p]) for p in (slice(kept), slice(kept, None))
        ]
        return cut[0], cut[1] if cut[1].captions else cut[0]

    def batch(self, number: int) -> tuple[Tensor, ...]:
        generator = draw(self.config.seed, "scenes", number)
        count = len(self.parts[0].captions)
        chosen = generator.randint(0, count, (self.config.batch,), np.dtype(np.int64))
        return self._tensors(self.parts[0], chosen)

    def _tensors(self, given: Scenes, chosen: Array) -> tuple[Tensor, ...]:
        pictures = given.pictures[chosen] * np.float32(2 / 255) - np.float32(1)
        return from_array(pictures), self.words([given.captions[i] for i in chosen])

    def words(self, captions: list[str]) -> Tensor:
        try:
            rows = [encode_caption(caption, self.sizes.length) for caption in captions]
        except ValueError as error:
            raise ConfigError(str(error)) from error
        return from_array(np.array(rows, np.int64))

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        rebuilt, flow = _painter(model).losses(batch[0], batch[1])
        return rebuilt + flow if self.config.model.method == "full" else flow

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Errors on held-out scenes, with the same noise and times at each evaluation."""
        generator = draw(0, "evaluation noise")
        count, size = self.config.evaluate_batches, self.config.batch
        total = np.zeros(2)
        for number in range(count):
            chosen = (np.arange(size) + number * size) % len(self.parts[1].captions)
            batch = self._tensors(self.parts[1], chosen)
            found = _painter(model).losses(batch[0], batch[1], generator)
            total += [value.item() for value in found]
        rebuilt, flow = (total / count).tolist()
        return {"loss": flow + rebuilt, "flow": flow, "rebuilt": rebuilt}

    # -- pictures -----------------------------------------------------------------------------

    def sample(self, model: nn.Module, seed: int) -> Sample:
        return self.sample_prompts(model, list(PROMPTS), seed)

    def sample_prompts(self, model: nn.Module, prompts: list[str], seed: int) -> Sample:
        """A picture of each prompt."""
        options = self.config.model
        made = _painter(model).paint(
            self.words(prompts), options.sampling_steps, options.guidance, draw(seed, "sample")
        )
        return Sample(image=grid((made.array() + 1) / 2, min(4, len(prompts))))

    def extras(self) -> dict[str, Any]:
        return {"sizes": dict(self.sizes.__dict__)}

    @classmethod
    def presets(cls) -> dict[str, RunConfig]:
        def run(steps: int, batch: int, every: int, lr: float, options: FluxOptions) -> RunConfig:
            return RunConfig(
                task="flux", steps=steps, batch=batch, evaluate_every=every, sample_every=every,
                checkpoint_every=every, evaluate_batches=4, ema=0.99, model=options,
                optimizer=OptimizerConfig(lr=lr, warmup=steps // 20, final=0.05, weight_decay=0.0),
            )  # fmt: skip

        tiny = FluxOptions(
            size=8, channels=8, double=1, single=1, heads=2, width=32, sampling_steps=4
        )  # fmt: skip
        large = FluxOptions(size=32, channels=64, double=4, single=8, heads=6, width=192)
        return {
            "tiny": run(60, 8, 30, 3e-3, tiny),
            "small": run(3000, 16, 500, 2e-3, FluxOptions()),
            "medium": run(
                10_000, 32, 1000, 1e-3, FluxOptions(double=3, single=6, heads=4, width=128)
            ),
            "large": run(40_000, 32, 2000, 5e-4, large),
        }


def _painter(model: Any) -> Painter:
    found: Painter = model
    return found


def _trained(place: str) -> Painter:
    checkpoint = read_checkpoint(Path(place))
    model = checkpoint.model(checkpoint.task())
    if not isinstance(model, Painter):
        raise ConfigError(f"{place} is a {checkpoint.config.task}; train a flux first")
    merge_lora(model)
    return model


def _from_folder(folder: Path, size: int) -> Scenes:
    """Pictures with ``captions.jsonl``: {"file": "a.png", "caption": "a red circle"}."""
    about = folder / "captions.jsonl"
    if not about.is_file():
        raise ConfigError(
            f"there are no scenes {str(folder)!r}: give --data scenes, --data {NEW_COLOUR}, or a "
            "folder with pictures and captions.jsonl"
        )
    try:
        text = read_bounded(about, config.UNPACKED_BYTES, "set EVERGRAD_UNPACKED_BYTES").decode()
        lines = [_captioned(line) for line in text.split("\n") if line.strip()]
    except ValueError as error:
        raise ConfigError(f"{about}: {error}") from error
    if not lines:
        raise ConfigError(f"{about} is empty: there is nothing to learn from")
    pictures = []
    for file, _ in lines:
        picture = read_image(folder / file).numpy()[:3]
        if picture.shape != (3, size, size):
            raise ConfigError(f"{file} is {picture.shape}, not (3, {size}, {size})")
        pictures.append(picture)
    return Scenes(np.stack(pictures), [caption for _, caption in lines])


def _captioned(line: str) -> tuple[str, str]:
    """A picture of the folder, by the name of its file, and its caption."""
    value = parse_json(line, "a line")
    file, caption = (
        (value.get("file"), value.get("caption")) if isinstance(value, dict) else (None, None)
    )
    if not isinstance(file, str) or not isinstance(caption, str):
        raise ValueError(f'a line is {{"file": ..., "caption": ...}}, not {line[:80]}')
    if Path(file).is_absolute() or ".." in Path(file).parts:
        raise ValueError(f"{file!r} is no file of the folder")
    return file, caption
