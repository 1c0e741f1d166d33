"""One request while it is being answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from evergrad.core.types import Array
from evergrad.serve.pages import PAGE, PageTable, chunk_names, pages_for
from evergrad.serve.sampling import Sampler, Sampling, log_softmax


class Token(NamedTuple):
    """A token that was written; with log-probabilities if they are wanted."""

    token: int
    log_probability: float | None = None
    likeliest: tuple[tuple[int, float], ...] = ()


class Finished(NamedTuple):
    """The end of an answer: ``stop``, ``length``, ``cancelled`` or ``error``."""

    reason: str
    reused: int = 0  # tokens of the prompt that were not computed again


Event = Token | Finished


@dataclass(frozen=True)
class Request:
    """What is to be written."""

    prompt: tuple[int, ...]
    max_tokens: int
    sampling: Sampling = field(default_factory=Sampling)
    stops: frozenset[int] = frozenset()
    log_probabilities: int | None = None  # how many of the likeliest tokens are reported with each
    adapter: str | None = None


class Sequence:
    """Tokens so far, the pages of those that were read, and who is notified.

    ``known`` tokens have their keys and values in the pool; the others are read next. Pages for the
    longest possible answer are reserved before the first is taken, so no answer is ever put aside.
    """

    def __init__(self, request: Request, tell: Callable[[Event], None]) -> None:
        self.request = request
        self.tokens: list[int] = list(request.prompt)
        self.sampler: Sampler = Sampler(request.sampling, request.prompt)
        self.known: int = 0
        self.draft_known: int = 0
        self.pages: list[int] = []
        self.names: list[bytes] = chunk_names(request.prompt, request.adapter or "")
        self.reused: int = 0
        self.is_cancelled: bool = False
        self.is_finished: bool = False
        self._tell = tell
        self._promised = 0

    @property
    def limit(self) -> int:
        """The most tokens it can have."""
        return len(self.request.prompt) + self.request.max_tokens

    @property
    def is_prefilled(self) -> bool:
        return len(self.tokens) > len(self.request.prompt)

    @property
    def needs_prefill(self) -> bool:
        return not (self.is_prefilled or self.is_cancelled or self.is_finished)

    def cancel(self) -> None:
        """Stop writing; the engine ends it before its next step."""
        self.is_cancelled = True

    # -- pages --------------------------------------------------------------------------------

    def admit(self, table: PageTable) -> bool:
        """Take known pages of the prompt and reserve the others; False if there is no room."""
        whole = (len(self.tokens) - 1) // PAGE  # the last token is always computed
        found = table.find(self.names[:whole])
        wanted = pages_for(self.limit) - len(found)
        if wanted + table.idle_among(found) > table.available:
            return False
        for page in found:
            table.share(page)
        table.reserve(wanted)
        table.reused += len(found)
        self._promised = wanted
        self.pages = list(found)
        self.known = self.draft_known = self.reused = len(found) * PAGE
        return True

    def grow(self, table: PageTable, tokens: int) -> None:
        """Have pages for so many tokens in all."""
        while len(self.pages) < pages_for(tokens):
            self.pages.append(table.take())
            self._promised -= 1

    def name_pages(self, table: PageTable, before: int) -> None:
        """Let other prompts find the full pages that were computed since ``before`` tokens."""
        for number in range(before // PAGE, self.known // PAGE):
            if number < len(self.names):
                table.name(self.pages[number], self.names[number])

    def release(self, table: PageTable) -> None:
        for page in self.pages:
            table.give_back(page)
        table.reserved -= self._promised
        self.pages, self._promised = [], 0

    # -- tokens -------------------------------------------------------------------------------

    def write(self, token: int, scores: Array) -> None:
        """Add a token that was drawn, tell it, and end the answer if it was the last."""
        self.tokens.append(token)
        if token in self.request.stops:
            self.finish("stop")
            return
        self._tell(self._described(token, scores))
        if len(self.tokens) >= self.limit:
            self.finish("length")

    def finish(self, reason: str) -> None:
        if not self.is_finished:
            self.is_finished = True
            self._tell(Finished(reason, self.reused))

    def _described(self, token: int, scores: Array) -> Token:
        count = self.request.log_probabilities
        if count is None:
            return Token(token)
        found = log_softmax(scores)
        order = np.argsort(-found, kind="stable")[:count]
        likeliest = tuple((int(other), float(found[other])) for other in order)
        return Token(token, float(found[token]), likeliest)
