"""Text from a language model, token by token.

A prompt is read at once, then each token is one run of a compiled program of fixed shapes: it
costs the same wherever it stands. When the context of a GPT is full, its last half is read again
as a new beginning; an LSTM continues with its state.
"""

# Modules called give Any, and so do methods of tensors, which are attached at run time.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import evergrad as eg
from evergrad import memory
from evergrad.core.types import Array
from evergrad.models.model import evaluating, require

if TYPE_CHECKING:
    from evergrad.core.rng.default_generator import Generator


class Decoder:
    """A language model reading one sequence.

    It has buffers and a program of its own: keep it to write several texts with one model.
    ``compiled=False`` computes with the model as it stands.
    """

    cache: Any

    def __init__(self, model: Any, compiled: bool = True) -> None:
        self.model = model
        self.modules: list[Any] = list(model.modules())
        self.cache = cache = model.new_cache()
        self.tokens: list[int] = []  # those that the cache has seen

        def read(tokens: eg.Tensor) -> eg.Tensor:  # (1, T) -> (1, T, vocabulary)
            return model(tokens, cache)

        self._read_several = read
        self._read_one: Any = eg.compile(read) if compiled else read

    def begin(self, tokens: Sequence[int]) -> eg.Tensor:
        """Forget what was; read these tokens, or as many of the last as the model can look at.
        Gives the scores of the token after them, (vocabulary)."""
        self.cache.reset()
        self.tokens = list(tokens if self.cache.limit is None else tokens[-self.cache.limit :])
        return self._read(self.tokens)

    def append(self, token: int) -> eg.Tensor:
        """Read one more token; gives the scores of the token after it, (vocabulary)."""
        limit = self.cache.limit
        if limit is not None and len(self.tokens) == limit:
            return self.begin([*self.tokens, token][-max(1, limit // 2) :])
        scores = self._read([token])
        self.tokens.append(token)
        return scores

    def _read(self, tokens: list[int]) -> eg.Tensor:
        read = self._read_one if len(tokens) == 1 else self._read_several
        with evaluating(self.modules):
            return read(eg.tensor([tokens]))[0, -1]

    @classmethod
    def kept_bytes(cls, model: object, compiled: bool = True) -> int:
        """Bytes that a decoder of the model keeps between two texts: its cache, and the arena of
        the program that reads one token. Nothing is read."""
        before = memory.stats()["live"]
        decoder = cls(model, compiled)
        held = int(memory.stats()["live"]) - before
        if not compiled:
            return held
        with evaluating(decoder.modules):
            return held + int(decoder._read_one.plan(eg.tensor([[0]])).peak)


def generate(
    model: object, tokens: Sequence[int], length: int, *, temperature: float = 1.0,
    top_k: int | None = None, top_p: float | None = None, seed: int | None = None,
) -> Iterator[int]:  # fmt: skip
    """Draw the ``length`` tokens that follow the given ones, one after the other.

    ``model`` is a GPT, an LSTM language model or a :class:`Decoder` of one. A temperature below 1
    prefers what is likely, 0 always takes the likeliest. ``top_k`` chooses among so many of the
    likeliest tokens, ``top_p`` among the fewest whose probabilities add up to it. Without a seed
    the default generator draws.
    """
    decoder = model if isinstance(model, Decoder) else Decoder(model)
    _check_tokens(tokens, decoder.model.config.vocabulary)
    require(length >= 0, f"length is {length}", "ask for 0 tokens or more")
    _check_choice(temperature, top_k, top_p)
    generator = None if seed is None else eg.Generator().manual_seed(seed)
    return _draw(decoder, list(tokens), length, temperature, top_k, top_p, generator)


def _draw(
    decoder: Decoder, tokens: list[int], length: int, temperature: float, top_k: int | None,
    top_p: float | None, generator: Generator | None,
) -> Iterator[int]:  # fmt: skip
    scores = None
    token = -1
    for _ in range(length):
        scores = decoder.begin(tokens) if scores is None else decoder.append(token)
        if temperature == 0:
            token = int(scores.argmax())
        else:
            chances = probabilities(scores.numpy(), temperature, top_k, top_p)
            token = int(eg.multinomial(eg.from_numpy(chances), 1, generator=generator))
        yield token


def probabilities(
    scores: Array, temperature: float, top_k: int | None, top_p: float | None
) -> Array:  # (vocabulary) -> (vocabulary)
    """How likely each token is drawn: first ``top_k`` of them are left, then ``top_p`` of those."""
    scores = scores.astype(np.float64)
    order = np.argsort(-scores, kind="stable")[:top_k]  # the likeliest first
    p = np.exp((scores[order] - scores.max()) / temperature)
    p /= p.sum()
    if top_p is not None:
        p *= np.cumsum(p) - p < top_p  # a token stays if those before it are not enough
    chances = np.zeros_like(scores)
    chances[order] = p / p.sum()
    return chances


def _check_tokens(tokens: Sequence[int], vocabulary: int) -> None:
    require(len(tokens) > 0, "there is no token to begin with", "give a prompt of one or more")
    wrong = [token for token in tokens if not 0 <= token < vocabulary]
    require(
        not wrong,
        f"the prompt has the token {wrong[:1]}, but the model knows those from 0 to "
        f"{vocabulary - 1}",
        "encode the prompt with the tokenizer the model was trained with",
    )


def _check_choice(temperature: float, top_k: int | None, top_p: float | None) -> None:
    require(temperature >= 0, f"temperature is {temperature}", "choose 0 or more")
    require(top_k is None or top_k >= 1, f"top_k is {top_k}", "choose 1 or more, or leave it out")
    require(
        top_p is None or 0 < top_p <= 1,
        f"top_p is {top_p}",
        "choose a probability above 0 and up to 1, or leave it out",
    )
