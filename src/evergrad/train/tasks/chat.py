"""Fine-tuning on conversations: a trained GPT learns to answer.

Conversations are packed into rows of the context's length; a token sees its own conversation alone,
and the loss is that of the answers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from evergrad import nn
from evergrad.core.rng.default_generator import using_generator
from evergrad.core.tensor import Tensor
from evergrad.datasets.conversations import Conversation, read_conversations
from evergrad.datasets.small_talk import small_talk
from evergrad.models.cache import Segments
from evergrad.models.generate import Decoder, generate
from evergrad.models.gpt import GPT, GPTConfig
from evergrad.models.lora import LoRAConfig, add_lora
from evergrad.nn import functional as F
from evergrad.tokenizers import Tokenizer, tokenizer_from_dict
from evergrad.tokenizers.chat import ChatFormat, ChatTokenizer, Example, PlainFormat, chat_format
from evergrad.train.config import ConfigError, OptimizerConfig, RunConfig
from evergrad.train.pretrained import extended, load_pretrained
from evergrad.train.task import Sample, Task
from evergrad.train.tasks.draws import draw
from evergrad.train.tasks.packing import IGNORED, pack

BUILT_IN = "small-talk"
SAMPLE_LENGTH = 120  # tokens
QUESTIONS = ("Hi!", "What is a list?", "Explain while")


@dataclass(frozen=True)
class ChatConfig:
    """What is fine-tuned, and how much of it."""

    init_from: str = ""  # a run, a checkpoint or a folder in Hugging Face's layout
    method: Literal["full", "lora"] = "full"
    rank: int = 8  # of LoRA
    alpha: float = 16.0
    targets: str = "qkv,out,widen,gate"  # layers that LoRA adapts
    context: int = 256  # at least; a model with a shorter one is extended

    def __post_init__(self) -> None:
        if self.context < 2:
            raise ConfigError(f"context has to be at least 2, not {self.context}")
        self.lora()  # checks its options

    def lora(self) -> LoRAConfig:
        names = (name.strip() for name in self.targets.split(","))
        return LoRAConfig(self.rank, self.alpha, tuple(filter(None, names)))


class ChatTask(Task):
    """A GPT that was trained on text, and conversations it is to answer in.

    A checkpoint has the sizes of the model and its tokenizer, so that it needs no other run.
    """

    name = "chat"
    unit = "tokens"

    def __init__(self, config: RunConfig, extras: dict[str, Any] | None = None) -> None:
        super().__init__(config, extras)
        self._base: GPT | None = None
        self._decoder: Decoder | None = None
        if extras is None:
            self._begin()
        else:
            self.tokenizer: Tokenizer = tokenizer_from_dict(extras["tokenizer"])
            self.options: GPTConfig = GPTConfig(**extras["model"])

    def _begin(self) -> None:
        if not self.config.model.init_from:
            raise ConfigError("name what is to be fine-tuned: --init-from runs/gpt")
        found = load_pretrained(self.config.model.init_from)
        is_plain = isinstance(chat_format(found.tokenizer), PlainFormat)
        self.tokenizer = ChatTokenizer(found.tokenizer) if is_plain else found.tokenizer
        vocabulary = max(len(self.tokenizer), found.model.config.vocabulary)
        with using_generator(draw(self.config.seed, "new rows")):
            self._base = extended(found.model, vocabulary, self.config.model.context)
        self.options = self._base.config

    @property
    def format(self) -> ChatFormat:
        return chat_format(self.tokenizer)

    @property
    def units_per_batch(self) -> int:
        return self.config.batch * self.options.context

    def model(self) -> nn.Module:
        model = GPT(self.options)
        if self._base is not None:
            model.load_state_dict(self._base.state_dict())
            self._base = None  # later models are restored from checkpoints
        if self.config.model.method == "lora":
            add_lora(model, self.config.model.lora())
        return model

    # -- data ---------------------------------------------------------------------------------

    @cached_property
    def conversations(self) -> list[Conversation]:
        source = self.config.data.source
        if source in ("", BUILT_IN):
            return small_talk()
        try:
            return read_conversations(source)
        except (FileNotFoundError, ValueError) as error:
            raise ConfigError(
                f"{error}; give --data a file of conversations (JSONL), or {BUILT_IN!r}"
            ) from error

    @cached_property
    def parts(self) -> tuple[list[Example], list[Example]]:
        """Encoded conversations to train with, and those that are held out."""
        examples = [self.format.example(turns) for turns in self.conversations]
        examples = [one for one in examples if any(one.learned[1:])]  # templates may leave some out
        return split(examples, self.config.data.held_out)

    def batch(self, number: int) -> tuple[Tensor, ...]:
        order = draw(self.config.seed, "conversations", number)
        return pack(self.parts[0], self.options.context, self.config.batch, order)

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        return self._cross_entropy(model, batch, "mean")

    def loss_sum(self, model: nn.Module, *batch: Tensor) -> Tensor:
        return self._cross_entropy(model, batch, "sum")

    def terms(self, *batch: Tensor) -> Tensor | None:
        """The tokens of answers; conversations have more or fewer of them."""
        found: Tensor = (batch[1] != IGNORED).sum()
        return found

    def _cross_entropy(self, model: nn.Module, batch: tuple[Tensor, ...], reduction: str) -> Tensor:
        tokens, following, segments = batch
        scores = model(tokens, Segments(segments, self.options.layers))  # (B, T, vocabulary)
        return F.cross_entropy(
            scores.flatten(0, 1), following.flatten(), ignore_index=IGNORED, reduction=reduction
        )

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """The mean loss of held-out answers, in nats per token."""
        loss, total = 0.0, 0
        for number in range(self.config.evaluate_batches):
            order = draw(0, "held-out conversations", number)
            batch = pack(self.parts[1], self.options.context, self.config.batch, order)
            count = int((batch[1] != IGNORED).sum())
            loss += self.loss(model, *batch).item() * count
            total += count
        return {"loss": loss / total}

    # -- answers ------------------------------------------------------------------------------

    def sample(self, model: nn.Module, seed: int) -> Sample:
        asked = [(q, self.answer(model, [{"role": "user", "content": q}], seed)) for q in QUESTIONS]
        return Sample(text="\n".join(f"> {question}\n{answer}" for question, answer in asked))

    def sampler_bytes(self, model: nn.Module) -> int:
        return Decoder.kept_bytes(model, compiled=not self.config.eager)

    def answer(self, model: nn.Module, messages: Sequence[dict[str, str]], seed: int) -> str:
        """What the model answers at a low temperature."""
        if self._decoder is None or self._decoder.model is not model:
            self._decoder = Decoder(model, compiled=not self.config.eager)
        tokens: list[int] = []
        prompt = self.format.prompt(messages)
        for token in generate(self._decoder, prompt, SAMPLE_LENGTH, temperature=0.5, seed=seed):
            if token in self.format.stops:
                break
            tokens.append(token)
        return self.tokenizer.decode(tokens)

    def extras(self) -> dict[str, Any]:
        return {
            "tokenizer": self.tokenizer.to_dict(),
            "model": dataclasses.asdict(self.options),
        }

    @classmethod
    def presets(cls) -> dict[str, RunConfig]:
        def run(steps: int, batch: int, lr: float, context: int, every: int) -> RunConfig:
            return RunConfig(
                task="chat", steps=steps, batch=batch, evaluate_every=every, sample_every=every,
                checkpoint_every=every, model=ChatConfig(context=context),
                optimizer=OptimizerConfig(lr=lr, warmup=min(50, steps // 4), weight_decay=0.0),
            )  # fmt: skip

        return {
            "tiny": run(40, 4, 3e-3, 128, 20),
            "small": run(800, 12, 3e-3, 128, 200),
            "medium": run(2000, 8, 1e-3, 256, 250),
            "large": run(10_000, 16, 5e-4, 512, 500),
        }


def split(examples: Sequence[object], held_out: float) -> tuple[list[Any], list[Any]]:
    """Every so many-th is held out: at least one, and not all."""
    if len(examples) < 2:
        raise ConfigError(
            f"examples with an answer: {len(examples)}; at least two are needed, one of them held "
            "out"
        )
    count = min(max(1, round(len(examples) * held_out)), len(examples) - 1)
    chosen = {(2 * i + 1) * len(examples) // (2 * count) for i in range(count)}
    kept = [example for i, example in enumerate(examples) if i not in chosen]
    return kept, [example for i, example in enumerate(examples) if i in chosen]
