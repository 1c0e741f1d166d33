"""Direct preference optimization: of two answers, the better one becomes likelier.

The loss is ``-log sigmoid(beta * (gain(chosen) - gain(rejected)))``, where the gain of an answer is
its log-probability beyond that under the model it began as (Rafailov et al., 2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

import evergrad as eg
from evergrad import nn
from evergrad.core.tensor import Tensor, from_array
from evergrad.core.types import Array
from evergrad.datasets.conversations import Preference, read_preferences
from evergrad.datasets.small_talk import polite_preferences
from evergrad.nn import functional as F
from evergrad.tokenizers.chat import Example
from evergrad.train.config import ConfigError, OptimizerConfig, RunConfig
from evergrad.train.tasks.chat import ChatConfig, ChatTask, split
from evergrad.train.tasks.draws import draw
from evergrad.train.tasks.packing import IGNORED, pad

BUILT_IN = "polite"


@dataclass(frozen=True)
class PreferenceConfig(ChatConfig):
    """What is fine-tuned, and how far it may leave the model it began as."""

    beta: float = 0.1  # larger keeps it nearer

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.beta > 0:
            raise ConfigError(f"beta has to be positive, not {self.beta}")


class PreferenceTask(ChatTask):
    """A GPT that answers, and pairs of a better and a worse answer."""

    name = "dpo"
    rows_per_example = 2  # a chosen answer and a rejected one

    def __init__(self, config: RunConfig, extras: dict[str, object] | None = None) -> None:
        super().__init__(config, extras)
        if extras is not None:
            self._reference: Array | None = np.array(extras["reference"], np.float32)
        elif self._base is not None:
            self._reference = self._log_probabilities(self._base.eval())

    @property
    def units_per_batch(self) -> int:
        return 2 * super().units_per_batch

    @cached_property
    def preferences(self) -> list[Preference]:
        source = self.config.data.source
        if source in ("", BUILT_IN):
            return polite_preferences()
        try:
            return read_preferences(source)
        except (FileNotFoundError, ValueError) as error:
            raise ConfigError(
                f"{error}; give --data a file of preferences (JSONL), or {BUILT_IN!r}"
            ) from error

    @cached_property
    def pairs(self) -> list[tuple[Example, Example]]:
        return [
            (self._answered(one.prompt, one.chosen), self._answered(one.prompt, one.rejected))
            for one in self.preferences
        ]

    @cached_property
    def numbers(self) -> tuple[list[int], list[int]]:
        """Which pairs are to train with, and which are held out."""
        return split(list(range(len(self.pairs))), self.config.data.held_out)

    def _answered(self, prompt: Sequence[dict[str, str]], answer: str) -> Example:
        """A conversation of which the last answer alone is learned."""
        found = self.format.example([*prompt, {"role": "assistant", "content": answer}])
        before = len(self.format.example(prompt).tokens) if prompt else 0
        learned = [now and i >= before for i, now in enumerate(found.learned)]
        return Example(found.tokens, learned)

    def _log_probabilities(self, model: nn.Module) -> Array:
        """Those of all chosen and rejected answers under a model, (pairs, 2)."""
        found = []
        with eg.no_grad():
            for pair in self.pairs:
                tokens, following = pad(pair, self.options.context)
                found.append(log_probabilities(model, tokens, following).numpy())
        return np.stack(found)

    def batch(self, number: int) -> tuple[Tensor, ...]:
        """Rows of chosen answers, then of rejected ones."""
        known = self.numbers[0]
        generator = draw(self.config.seed, "preferences", number)
        drawn = generator.randint(0, len(known), (self.config.batch,), np.dtype(np.int64))
        return self._rows([known[i] for i in drawn.tolist()])

    def _rows(self, numbers: Sequence[int]) -> tuple[Tensor, ...]:
        assert self._reference is not None
        pairs = [self.pairs[i] for i in numbers]
        tokens, following = pad([a for a, _ in pairs] + [b for _, b in pairs], self.options.context)
        reference = self._reference[list(numbers)].T.reshape(-1)
        return tokens, following, from_array(np.ascontiguousarray(reference))

    def gains(self, model: nn.Module, *batch: Tensor) -> Tensor:
        """How much likelier each chosen answer became than its rejected one, (B)."""
        tokens, following, reference = batch
        gained = log_probabilities(model, tokens, following) - reference
        chosen, rejected = gained.chunk(2)
        found: Tensor = chosen - rejected
        return found

    def terms(self, *batch: Tensor) -> None:
        """Each pair counts once, however long its answers are."""

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        found: Tensor = -F.logsigmoid(self.config.model.beta * self.gains(model, *batch)).mean()
        return found

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """The loss on held-out pairs, and the part of them in which the better one gained."""
        known = self.numbers[1]
        size = self.config.batch
        parts = [known[i : i + size] for i in range(0, len(known), size)]
        gains = [self.gains(model, *self._rows(part)).numpy() for part in parts]
        gained = np.concatenate(gains).astype(np.float64)
        loss = np.logaddexp(0, -self.config.model.beta * gained).mean()
        return {"loss": float(loss), "accuracy": float((gained > 0).mean())}

    def extras(self) -> dict[str, Any]:
        assert self._reference is not None
        return {**super().extras(), "reference": self._reference.tolist()}

    @classmethod
    def presets(cls) -> dict[str, RunConfig]:
        def run(steps: int, batch: int, context: int, every: int) -> RunConfig:
            return RunConfig(
                task="dpo", steps=steps, batch=batch, evaluate_every=every, sample_every=every,
                checkpoint_every=every, model=PreferenceConfig(context=context),
                optimizer=OptimizerConfig(lr=2e-4, warmup=steps // 10, weight_decay=0.0),
            )  # fmt: skip

        return {
            "tiny": run(20, 2, 128, 10), "small": run(100, 4, 128, 50),
            "medium": run(1000, 8, 256, 100), "large": run(5000, 16, 512, 500),
        }  # fmt: skip


def log_probabilities(
    model: nn.Module, tokens: Tensor, following: Tensor
) -> Tensor:  # (B, T), (B, T) -> (B)
    """The log-probability of the learned tokens of each row together."""
    scores = model(tokens).flatten(0, 1)  # (B T, vocabulary)
    each = F.cross_entropy(scores, following.flatten(), ignore_index=IGNORED, reduction="none")
    found: Tensor = -each.view(tokens.shape).sum(1)
    return found
