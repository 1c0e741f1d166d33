"""Beam search: the likeliest texts, found by following the best few beginnings.

Beams share the pages of what they have in common; a page that two beams would write to is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evergrad.core.types import Array
from evergrad.models.model import require
from evergrad.serve.paged import ROWS, PagedGPT, Rows
from evergrad.serve.pages import PAGE, PageTable, pages_for
from evergrad.serve.sampling import log_softmax


class Beam(NamedTuple):
    """What was written after the prompt (with the token that ended it) and its log-probability."""

    tokens: tuple[int, ...]
    log_probability: float

    def score(self, length_penalty: float) -> float:
        """The log-probability by length to this power; larger penalties favour longer texts."""
        found: float = self.log_probability / max(1, len(self.tokens)) ** length_penalty
        return found


class _Branch(NamedTuple):
    beam: Beam
    pages: list[int]


def beam_search(
    paged: PagedGPT, table: PageTable, prompt: Sequence[int], max_tokens: int, *, beams: int = 4,
    stops: frozenset[int] = frozenset(), length_penalty: float = 1.0,
) -> list[Beam]:  # fmt: skip
    """The best ``beams`` continuations of a prompt, the best first.

    A beam that writes a stop is complete, if it is among the best ``beams`` of its length. The
    search ends when as many are complete as are wanted and no other has a better score at its
    present length, or at ``max_tokens``.
    """
    require(1 <= beams <= ROWS, f"beams is {beams}", f"choose 1 to {ROWS}")
    most = min(max_tokens, paged.context - len(prompt))
    require(most >= 1, f"{len(prompt)} tokens leave no room to write", "give a shorter prompt")
    wanted = beams * pages_for(len(prompt) + most)
    require(table.reserve(wanted), f"{wanted} pages are not free", "use fewer beams, or wait")
    search = _Search(paged, table, list(prompt), stops, length_penalty, beams, wanted)
    try:
        search.begin()
        for _ in range(most - 1):
            if search.is_done():
                break
            search.extend()
        return search.best()
    finally:
        search.end()


class _Search:
    def __init__(
        self, paged: PagedGPT, table: PageTable, prompt: list[int], stops: frozenset[int],
        length_penalty: float, count: int, promised: int,
    ) -> None:  # fmt: skip
        self.paged, self.table, self.prompt = paged, table, prompt
        self.stops, self.penalty, self.count = stops, length_penalty, count
        self.promised = promised  # pages that are reserved and not taken
        self.alive: list[_Branch] = []
        self.complete: list[Beam] = []

    def begin(self) -> None:
        """Read the prompt and take the likeliest first tokens."""
        pages = [self._take() for _ in range(pages_for(len(self.prompt)))]
        scores = self.paged.read_prompt(Rows(self.prompt, 0, pages))
        self._branch([_Branch(Beam((), 0.0), pages)], scores[None])

    def extend(self) -> None:
        """Read the last token of each beam, and go on with the best of all continuations."""
        place = len(self.prompt) + len(self.alive[0].beam.tokens) - 1
        branches = [_Branch(b.beam, self._own(b.pages, place)) for b in self.alive]
        rows = [Rows([b.beam.tokens[-1]], place, b.pages) for b in branches]
        self._branch(branches, self.paged.last_scores(rows))

    def _branch(self, branches: list[_Branch], scores: Array) -> None:
        """The best continuations; those that stop are complete and leave their place to others."""
        totals = np.stack([
            branch.beam.log_probability + log_softmax(row)
            for branch, row in zip(branches, scores, strict=True)
        ])  # fmt: skip
        # Enough for as many beams that continue as are wanted, whichever of the others stop.
        considered = self.count * (1 + max(1, len(self.stops)))
        order = np.argsort(-totals, axis=None, kind="stable")[:considered]
        chosen: list[_Branch] = []
        for rank, number in enumerate(order.tolist()):
            origin, token = divmod(number, totals.shape[1])
            branch = branches[origin]
            beam = Beam((*branch.beam.tokens, token), float(totals[origin, token]))
            if token in self.stops:
                if rank < self.count:
                    self.complete.append(beam)
            elif len(chosen) < self.count:
                chosen.append(_Branch(beam, list(branch.pages)))
        for branch in chosen:
            for page in branch.pages:
                self.table.share(page)
        self._drop(branches)
        self.alive = chosen

    def _own(self, pages: list[int], place: int) -> list[int]:
        """Pages of which the one with this place belongs to one beam alone."""
        number = place // PAGE
        if number == len(pages):
            return [*pages, self._take()]
        shared = pages[number]
        if self.table.users(shared) == 1:
            return pages
        copy = self._take()
        self.paged.copy_page(shared, copy)
        self.table.give_back(shared)  # others use it still
        return [*pages[:number], copy, *pages[number + 1 :]]

    def is_done(self) -> bool:
        """Whether enough are complete and better than what the others have now."""
        if not self.alive:
            return True
        if len(self.complete) < self.count:
            return False
        worst = sorted(b.score(self.penalty) for b in self.complete)[-self.count]
        return worst >= max(b.beam.score(self.penalty) for b in self.alive)

    def best(self) -> list[Beam]:
        found = [*self.complete, *(branch.beam for branch in self.alive)]
        return sorted(found, key=lambda b: -b.score(self.penalty))[: self.count]

    def end(self) -> None:
        self._drop(self.alive)
        self.table.reserved -= self.promised

    def _take(self) -> int:
        self.promised -= 1
        return self.table.take()

    def _drop(self, branches: list[_Branch]) -> None:
        """Give pages back, and keep those that become free for this search."""
        before = self.table.available
        for branch in branches:
            for page in branch.pages:
                self.table.give_back(page)
        freed = self.table.available - before
        self.table.reserve(freed)
        self.promised += freed
