"""Small models for the tests of serving."""

from __future__ import annotations

from typing import Any

import evergrad as eg
from evergrad.models.gpt import GPT, GPTConfig
from evergrad.serve.engine import Engine, EngineConfig
from evergrad.serve.sampling import Sampling
from evergrad.serve.sequence import Finished, Request

SIZES: dict[str, Any] = {"vocabulary": 23, "context": 80, "layers": 2, "heads": 4, "width": 16}
VARIANTS = {
    "gpt2": GPTConfig(**SIZES),
    "llama": GPTConfig(
        **SIZES, positions="rotary", norm="rms", feed_forward="swiglu", kv_heads=2, bias=False,
        tie=False,
    ),
}  # fmt: skip


def made(name: str = "llama", seed: int = 0, **changes: Any) -> GPT:
    """A model whose weights are all large enough to matter."""
    eg.manual_seed(seed)
    config = VARIANTS[name]
    model = GPT(GPTConfig(**{**config.__dict__, **changes}))
    with eg.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.3)
    return model.eval()


def engine_of(model: GPT, sequences: int = 20, **options: Any) -> Engine:
    given = {k: options.pop(k) for k in ("draft", "adapters") if k in options}
    return Engine(model, EngineConfig(sequences=sequences, **options), **given)


class Told:
    """Collects what an engine tells of one request."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def __call__(self, event: Any) -> None:
        self.events.append(event)

    @property
    def tokens(self) -> list[int]:
        return [event.token for event in self.events if not isinstance(event, Finished)]

    @property
    def reason(self) -> str | None:
        last = self.events[-1] if self.events else None
        return last.reason if isinstance(last, Finished) else None


def ask(engine: Engine, prompt: list[int], count: int = 12, **options: Any) -> Told:
    """Submit a request; its answer is there after ``engine.run()``."""
    own = ("stops", "log_probabilities", "adapter")
    given = {k: options.pop(k) for k in own if k in options}
    told = Told()
    told.sequence = engine.submit(  # type: ignore[attr-defined]
        Request(tuple(prompt), count, Sampling(**options), **given), told
    )
    return told


def answer(engine: Engine, prompt: list[int], count: int = 12, **options: Any) -> list[int]:
    told = ask(engine, prompt, count, **options)
    engine.run()
    return told.tokens


def likeliest(model: GPT, prompt: list[int], count: int) -> list[int]:
    """Without any cache: the whole text is read for each token."""
    tokens = list(prompt)
    for _ in range(count):
        with eg.no_grad():
            tokens.append(int(model(eg.tensor([tokens]))[0, -1].argmax()))
    return tokens[len(prompt) :]
