"""Speculative decoding: a small model proposes, the large one accepts or corrects.

A proposal drawn from ``q`` is accepted with probability ``min(1, p / q)``; after the first that is
not, a token is drawn from what ``p`` has more than ``q``, normalised. What is written then follows
``p``, the large model's distribution, exactly (Leviathan et al., 2023). Several tokens are scored
by one run of the large model.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from evergrad.core.types import Array
from evergrad.serve.paged import SCORED, PagedGPT, Rows
from evergrad.serve.pages import PageTable
from evergrad.serve.sampling import Distribution, Sampler
from evergrad.serve.sequence import Sequence


class Proposal(NamedTuple):
    token: int
    drawn_from: Distribution


class Speculation:
    """Writes tokens of sequences with two models that share their pages' numbers."""

    def __init__(self, target: PagedGPT, draft: PagedGPT, count: int) -> None:
        self.target = target
        self.draft = draft
        self.count: int = min(count, SCORED - 1)
        self.proposed: int = 0
        self.accepted: int = 0

    def prefill(self, rows: Rows) -> None:
        """Let the draft model read a part of a prompt, too."""
        self.draft.read_prompt(rows)

    def advance(self, sequence: Sequence, table: PageTable) -> None:
        """Write one token or several."""
        room = sequence.limit - len(sequence.tokens) - 1  # the last token needs no proposal
        count = max(0, min(self.count, room))
        sequence.grow(table, len(sequence.tokens) + count)
        proposals = self._propose(sequence, count)
        known = sequence.known
        new = [*sequence.tokens[known:], *(proposal.token for proposal in proposals)]
        scores = self.target.all_scores(Rows(new, known, sequence.pages))
        written = self._judge(sequence, proposals, scores[-len(proposals) - 1 :])
        sequence.known = known + len(new) - len(proposals) + written - 1
        sequence.draft_known = min(sequence.draft_known, sequence.known)

    def _propose(self, sequence: Sequence, count: int) -> list[Proposal]:
        tokens = list(sequence.tokens)
        found: list[Proposal] = []
        for _ in range(count):
            while True:  # what the draft model has not read yet
                start = sequence.draft_known
                part = tokens[start : start + SCORED]
                scores = self.draft.last_scores([Rows(part, start, sequence.pages)])[0]
                sequence.draft_known += len(part)
                if sequence.draft_known == len(tokens):
                    break
            distribution = sequence.sampler.distribution(scores[: self.target.vocabulary])
            token = sequence.sampler.pick(distribution)
            tokens.append(token)
            found.append(Proposal(token, distribution))
        self.proposed += len(found)
        return found

    def _judge(self, sequence: Sequence, proposals: list[Proposal], scores: Array) -> int:
        """Write accepted proposals and the token after them; gives how many were written."""
        sampler = sequence.sampler
        for number, proposal in enumerate(proposals):
            wanted = sampler.distribution(scores[number])
            is_accepted = accepts(sampler, wanted, proposal)
            token = proposal.token if is_accepted else sampler.pick(excess(wanted, proposal))
            sampler.note(token)
            sequence.write(token, scores[number])
            self.accepted += is_accepted
            if not is_accepted or sequence.is_finished:
                return number + 1
        sequence.write(sampler.draw(scores[-1]), scores[-1])
        return len(proposals) + 1


def accepts(sampler: Sampler, wanted: Distribution, proposal: Proposal) -> bool:
    p, q = wanted.of(proposal.token), proposal.drawn_from.of(proposal.token)
    return sampler.uniform() * q < p


def excess(wanted: Distribution, proposal: Proposal) -> Distribution:
    """What is wanted beyond what was proposed."""
    given = dict(
        zip(proposal.drawn_from.tokens.tolist(), proposal.drawn_from.p.tolist(), strict=True)
    )
    q = np.array([given.get(token, 0.0) for token in wanted.tokens.tolist()])
    left = np.maximum(wanted.p - q, 0.0)
    total = left.sum()
    return wanted if total <= 0 else Distribution(wanted.tokens, left / total)
