"""Language models: predict the next character or token of a text."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

from evergrad import nn
from evergrad.core.tensor import Tensor
from evergrad.models.generate import Decoder, generate
from evergrad.models.gpt import GPT, GPTConfig
from evergrad.models.lstm import LSTMConfig, LSTMLanguageModel
from evergrad.nn import functional as F
from evergrad.tokenizers import Tokenizer, tokenizer_from_dict, train_tokenizer
from evergrad.train.config import ConfigError, OptimizerConfig, RunConfig
from evergrad.train.task import Sample, Task
from evergrad.train.tasks.corpus import Corpus, load_text

SAMPLE_LENGTH = 240  # tokens
SAMPLE_TEMPERATURE = 0.8


class LanguageTask(Task):
    """A text, its tokenizer, and windows of it.

    The text is read when its tokens are first needed: a run whose tokenizer comes from a
    checkpoint can write samples without it.
    """

    unit = "tokens"
    set_by_data: ClassVar[frozenset[str]] = frozenset({"vocabulary"})
    model_type: ClassVar[type]

    def __init__(self, config: RunConfig, extras: dict[str, Any] | None = None) -> None:
        super().__init__(config, extras)
        self.tokenizer: Tokenizer = (
            tokenizer_from_dict(extras["tokenizer"]) if extras else self._trained()
        )
        self._decoder: Decoder | None = None

    def _trained(self) -> Tokenizer:
        data, text = self.config.data, self.text
        try:
            return train_tokenizer(data.tokenizer, text, data.vocabulary)
        except ValueError as error:
            raise ConfigError(f"the tokenizer cannot be made: {error}") from error

    @cached_property
    def text(self) -> str:
        return load_text(self.config.data.source)

    @cached_property
    def corpus(self) -> Corpus:
        """The text as tokens, cut in two."""
        text = self.text
        try:
            tokens = self.tokenizer.encode_array(text)
        except ValueError as error:
            raise ConfigError(
                f"the text is not the one the tokenizer was made for: {error}. Give the run's own "
                "text with --data, or begin a new run."
            ) from error
        return Corpus(tokens, self.config.model.context, self.config.data.held_out)

    @property
    def units_per_batch(self) -> int:
        context: int = self.config.model.context
        return self.config.batch * context

    def model(self) -> nn.Module:
        options = dataclasses.replace(self.config.model, vocabulary=len(self.tokenizer))
        model: nn.Module = self.model_type(options)
        return model

    def batch(self, number: int) -> tuple[Tensor, ...]:
        return self.corpus.batch(self.config.seed, number, self.config.batch)

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        tokens, following = batch
        scores = model(tokens)  # (B, T, vocabulary)
        return F.cross_entropy(scores.flatten(0, 1), following.flatten())

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """The mean loss over windows spread evenly over the held-out text, in nats per token."""
        count, size = self.config.evaluate_batches, self.config.batch
        batches = (self.corpus.held_out_batch(number, count, size) for number in range(count))
        return {"loss": sum(self.loss(model, *batch).item() for batch in batches) / count}

    def sample(self, model: nn.Module, seed: int) -> Sample:
        if self._decoder is None or self._decoder.model is not model:
            self._decoder = Decoder(model, compiled=not self.config.eager)
        ids = generate(
            self._decoder, self._beginning(), SAMPLE_LENGTH,
            temperature=SAMPLE_TEMPERATURE, seed=seed,
        )  # fmt: skip
        return Sample(text=self.tokenizer.decode(ids))

    def sampler_bytes(self, model: nn.Module) -> int:
        return Decoder.kept_bytes(model, compiled=not self.config.eager)

    def _beginning(self) -> Sequence[int]:
        """What a sample follows: a new line, or the first token where there is none."""
        try:
            return self.tokenizer.encode("\n")
        except ValueError:
            return [0]

    def extras(self) -> dict[str, Any]:
        return {"tokenizer": self.tokenizer.to_dict()}


class GPTTask(LanguageTask):
    """A transformer that reads ``context`` tokens back."""

    name = "gpt"
    model_type = GPT

    @classmethod
    def presets(cls) -> dict[str, RunConfig]:
        return {
            "tiny": RunConfig(
                task="gpt", steps=300, batch=8, evaluate_every=100, sample_every=100,
                model=GPTConfig(context=32, layers=2, heads=2, width=64),
                optimizer=OptimizerConfig(lr=4e-3, warmup=30),
            ),
            "small": RunConfig(
                task="gpt", steps=1500, batch=16,
                model=GPTConfig(context=64, layers=4, heads=4, width=128),
                optimizer=OptimizerConfig(lr=2e-3, warmup=100),
            ),
            "medium": RunConfig(
                task="gpt", steps=2000, batch=16, evaluate_batches=32, sample_every=500,
                model=GPTConfig(
                    context=128, layers=4, heads=4, width=128,
                    positions="rotary", norm="rms", feed_forward="swiglu", bias=False,
                ),
                optimizer=OptimizerConfig(lr=3e-3, warmup=200, final=0.02),
            ),
            "large": RunConfig(
                task="gpt", steps=20_000, batch=32, evaluate_every=500, evaluate_batches=32,
                sample_every=1000, checkpoint_every=500, patience=8,
                model=GPTConfig(
                    context=256, layers=6, heads=6, width=384, dropout=0.2,
                    positions="rotary", norm="rms", feed_forward="swiglu", bias=False,
                ),
                optimizer=OptimizerConfig(lr=1e-3, warmup=500, final=0.05),
            ),
        }  # fmt: skip


class LSTMTask(LanguageTask):
    """A recurrent network: what it has read is a state of fixed size."""

    name = "lstm"
    model_type = LSTMLanguageModel

    @classmethod
    def presets(cls) -> dict[str, RunConfig]:
        return {
            "tiny": RunConfig(
                task="lstm", steps=300, batch=8, evaluate_every=100, sample_every=100,
                model=LSTMConfig(context=32, layers=1, width=64),
                optimizer=OptimizerConfig(lr=8e-3, warmup=30),
            ),
            "small": RunConfig(
                task="lstm", steps=1500, batch=16,
                model=LSTMConfig(context=64, layers=2, width=128),
                optimizer=OptimizerConfig(lr=4e-3, warmup=100),
            ),
            "medium": RunConfig(
                task="lstm", steps=5000, batch=32, evaluate_every=500, sample_every=1000,
                checkpoint_every=500,
                model=LSTMConfig(context=96, layers=2, width=256, dropout=0.1),
                optimizer=OptimizerConfig(lr=3e-3, warmup=200, final=0.05),
            ),
            "large": RunConfig(
                task="lstm", steps=20_000, batch=32, evaluate_every=500, sample_every=1000,
                checkpoint_every=500, patience=8,
                model=LSTMConfig(context=128, layers=3, width=512, dropout=0.2),
                optimizer=OptimizerConfig(lr=2e-3, warmup=500, final=0.05),
            ),
        }  # fmt: skip
