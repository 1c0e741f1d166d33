"""Which token is next: options, the distribution they leave, and draws by seed.

Every request draws from a stream of its own, so that what others draw does not matter.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from evergrad.core.types import Array
from evergrad.models.model import require

_COLDEST = 1e-30  # temperature: no difference of scores divided by it overflows
_FIRST = 256  # likeliest tokens that are sorted before all are, for top_p


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen.

    Scores are changed by the penalties and divided by the temperature; ``top_k`` of the likeliest
    are left, of those the fewest whose probabilities reach ``top_p``, of those the ones at least
    ``min_p`` times as likely as the likeliest. Temperature 0 takes the likeliest.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0  # scores of tokens that occurred: divided, or multiplied if < 0
    presence_penalty: float = 0.0  # taken from the scores of tokens that were written
    frequency_penalty: float = 0.0  # the same for each time
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None

    def __post_init__(self) -> None:
        finite = 0 <= self.temperature < np.inf
        require(finite, f"temperature is {self.temperature}", "choose 0 or more")
        require(self.top_k is None or self.top_k >= 1, f"top_k is {self.top_k}", "choose 1 or more")
        for name in ("top_p", "min_p"):
            value = getattr(self, name)
            holds = value is None or 0 <= value <= 1
            require(holds, f"{name} is {value}", "choose a probability, from 0 to 1")
        require(self.top_p != 0, "top_p is 0", "choose a probability above 0")
        penalty = self.repetition_penalty
        holds = 0.01 <= penalty <= 100
        require(holds, f"repetition_penalty is {penalty}", "choose a number from 0.01 to 100")
        for name in ("presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            require(-2 <= value <= 2, f"{name} is {value}", "choose a number from -2 to 2")
        wrong = [value for value in self.logit_bias.values() if not -100 <= value <= 100]
        require(not wrong, f"logit_bias has {wrong[:1]}", "choose numbers from -100 to 100")


class Distribution(NamedTuple):
    """Tokens that may be drawn and how likely each is; all others are never drawn."""

    tokens: Array  # (n)
    p: Array  # (n), float64, sums to 1

    def of(self, token: int) -> float:
        """How likely a token is."""
        here = np.flatnonzero(self.tokens == token)
        return float(self.p[here[0]]) if len(here) else 0.0

    def dense(self, vocabulary: int) -> Array:
        found = np.zeros(vocabulary)
        found[self.tokens] = self.p
        return found


class Sampler:
    """The options of one request, what it has written, and its random stream."""

    def __init__(self, options: Sampling, prompt: Sequence[int] = ()) -> None:
        self.options = options
        self._temperature = max(options.temperature, _COLDEST)
        self.seed: int = secrets.randbelow(1 << 63) if options.seed is None else options.seed
        key = self.seed & ((1 << 128) - 1)
        self._stream = np.random.Generator(np.random.Philox(key=key))
        self._occurred: set[int] = set(prompt)
        self._written: Counter[int] = Counter()

    def uniform(self) -> float:
        return float(self._stream.random())

    def note(self, token: int) -> None:
        """A token was written."""
        self._occurred.add(token)
        self._written[token] += 1

    def draw(self, scores: Array) -> int:
        """The next token after these scores, (vocabulary); it is noted."""
        if self.options.temperature == 0:
            found = int(self._penalized(scores).argmax())
        else:
            found = self.pick(self.distribution(scores))
        self.note(found)
        return found

    def pick(self, distribution: Distribution) -> int:
        """A token of a distribution: the first whose cumulated probability exceeds a draw."""
        if len(distribution.tokens) == 1:
            return int(distribution.tokens[0])
        reached = np.cumsum(distribution.p)
        place = np.searchsorted(reached, self.uniform() * reached[-1], side="right")
        return int(distribution.tokens[min(int(place), len(reached) - 1)])

    def distribution(self, scores: Array) -> Distribution:
        """What the options leave of the model's scores, (vocabulary)."""
        options = self.options
        scores = self._penalized(scores)
        if options.temperature == 0:
            return Distribution(np.array([int(scores.argmax())]), np.ones(1))
        if options.top_k is None and options.top_p is None:
            tokens = np.arange(len(scores))
            p = _softmax(scores, self._temperature)
        else:
            tokens, p = self._likeliest(scores)
        if options.min_p is not None:
            kept = p >= options.min_p * p.max()
            tokens, p = tokens[kept], p[kept] / p[kept].sum()
        return Distribution(tokens, p)

    def _likeliest(self, scores: Array) -> tuple[Array, Array]:
        """``top_k``, then ``top_p``; ties go to the smaller token."""
        options = self.options
        count = min(options.top_k or len(scores), len(scores))
        order = _first_by_score(scores, count if options.top_k else min(_FIRST, count))
        if options.top_p is None:
            return order, _softmax(scores[order], self._temperature)
        whole = scores[order] if options.top_k else scores
        weights = np.exp((scores[order].astype(np.float64) - scores.max()) / self._temperature)
        total = np.exp((whole.astype(np.float64) - scores.max()) / self._temperature).sum()
        before = np.cumsum(weights) - weights
        if len(order) < count and before[-1] + weights[-1] < options.top_p * total:
            order = _first_by_score(scores, count)
            shifted = scores[order].astype(np.float64) - scores.max()
            weights = np.exp(shifted / self._temperature)
            before = np.cumsum(weights) - weights
        kept = before < options.top_p * total  # a token stays if those before it are not enough
        return order[kept], weights[kept] / weights[kept].sum()

    def _penalized(self, scores: Array) -> Array:
        options = self.options
        is_plain = options.repetition_penalty == 1 and not options.logit_bias
        if is_plain and not (options.presence_penalty or options.frequency_penalty):
            return scores
        scores = scores.copy()
        if options.repetition_penalty != 1 and self._occurred:
            seen = np.fromiter(self._occurred, np.int64)
            penalty = options.repetition_penalty
            scores[seen] = np.where(
                scores[seen] < 0, scores[seen] * penalty, scores[seen] / penalty
            )
        for token, times in self._written.items():
            scores[token] -= options.presence_penalty + times * options.frequency_penalty
        for token, bias in options.logit_bias.items():
            if 0 <= token < len(scores):
                scores[token] += bias
        return scores


def log_softmax(scores: Array) -> Array:
    """Log-probabilities of all tokens, in float64."""
    shifted = scores.astype(np.float64) - scores.max()
    found: Array = shifted - np.log(np.exp(shifted).sum())
    return found


def _softmax(scores: Array, temperature: float) -> Array:
    p = np.exp((scores.astype(np.float64) - scores.max()) / temperature)
    found: Array = p / p.sum()
    return found


def _first_by_score(scores: Array, count: int) -> Array:
    """The likeliest tokens, the likeliest first; equal ones by number."""
    if count >= len(scores):
        return np.argsort(-scores, kind="stable")
    least = np.partition(scores, len(scores) - count)[len(scores) - count]
    above = np.flatnonzero(scores > least)
    equal = np.flatnonzero(scores == least)[: count - len(above)]
    chosen = np.concatenate([above, equal])
    chosen.sort()
    return chosen[np.argsort(-scores[chosen], kind="stable")]
