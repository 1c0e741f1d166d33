"""A GPT over a paged key-value pool, as compiled programs of fixed shapes.

A program takes B sequences with T new tokens each, B * T <= ``ROWS``, and a table of their pages.
It attends to what the tables name and to the new tokens, and returns the scores and the new keys
and values, which are then written into the pool. Within ``ROWS`` rows the products' kernels add up
each row in the same order however many rows there are, and attention reads a sequence's own pages
alone: what a sequence computes does not depend on what else is in its batch, to the bit.
"""

# Modules called give Any, and so do methods of tensors, which are attached at run time.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import evergrad as eg
from evergrad.models.gpt import GPT
from evergrad.models.model import evaluating
from evergrad.ops.rows.paged_attention import paged_attention
from evergrad.serve.pages import PAGE, pages_for

if TYPE_CHECKING:
    from evergrad.nn.module import Module

ROWS = 16
BATCHES = (1, 2, 4, 8, ROWS)

Array = np.ndarray[Any, Any]


class Rows(NamedTuple):
    """New tokens of one sequence: they follow ``start`` tokens, whose pages are given."""

    tokens: Sequence[int]
    start: int
    pages: Sequence[int]


class LayerPages:
    """The sight of one layer: the pages of the table, then the new tokens."""

    def __init__(self, keys: eg.Tensor, values: eg.Tensor, paged: PagedSight) -> None:
        self.keys = keys  # (pages, PAGE, nkv, hs)
        self.values = values
        self.paged = paged

    def attend(
        self, q: eg.Tensor, k: eg.Tensor, v: eg.Tensor, positions: eg.Tensor
    ) -> eg.Tensor:  # (B, nh, T, hs), twice (B, nkv, T, hs), (B, T)
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # (B, T, nh or nkv, hs)
        self.paged.new_keys.append(k)
        self.paged.new_values.append(v)
        y = paged_attention(
            q, k, v, self.keys, self.values, self.paged.table, self.paged.start,
            scale=q.shape[3] ** -0.5,
        )  # fmt: skip
        return y.transpose(1, 2)


class PagedSight:
    """New tokens see themselves, those before them in their row, and all earlier ones."""

    def __init__(
        self, keys: eg.Tensor, values: eg.Tensor, places: eg.Tensor, start: eg.Tensor,
        table: eg.Tensor,
    ) -> None:  # twice (layers, pages, PAGE, nkv, hs), (B, T), (B), (B, P)  # fmt: skip
        self.places = places
        self.start = start
        self.table = table
        self.new_keys: list[eg.Tensor] = []
        self.new_values: list[eg.Tensor] = []
        self.layers: list[LayerPages] = [
            LayerPages(keys[n], values[n], self) for n in range(keys.shape[0])
        ]

    def positions(self, length: int) -> eg.Tensor:
        return self.places

    def advance(self, length: int) -> None:
        """The new keys and values are written after the program has run."""


class PagedGPT:
    """A GPT, its pool of pages, and its programs."""

    values: eg.Tensor
    keys: eg.Tensor

    def __init__(self, model: GPT, pages: int, compiled: bool = True) -> None:
        c = model.config
        self.model = model
        self.context: int = c.context
        self.vocabulary: int = c.vocabulary
        self.modules: list[Module] = list(model.modules())
        shape = (c.layers, pages + 1, PAGE, c.shared_heads, c.head_size)
        self.keys = keys = eg.zeros(*shape)
        self.values = values = eg.zeros(*shape)
        self._key_memory, self._value_memory = keys.numpy(), values.numpy()

        def read(
            tokens: eg.Tensor, places: eg.Tensor, start: eg.Tensor, table: eg.Tensor
        ) -> tuple[eg.Tensor, ...]:  # (B, T), (B, T), (B), (B, P)
            sight = PagedSight(keys, values, places, start, table)
            features = model.features(tokens, sight)  # (B, T, C)
            return features, eg.stack(sight.new_keys), eg.stack(sight.new_values)

        def read_last(
            tokens: eg.Tensor, places: eg.Tensor, start: eg.Tensor, table: eg.Tensor,
            last: eg.Tensor,
        ) -> tuple[eg.Tensor, ...]:  # ..., (B)  # fmt: skip
            features, *new = read(tokens, places, start, table)
            chosen = features.flatten(0, 1)[last]  # (B, C)
            return model.scores(chosen), *new

        def read_all(
            tokens: eg.Tensor, places: eg.Tensor, start: eg.Tensor, table: eg.Tensor
        ) -> tuple[eg.Tensor, ...]:
            features, *new = read(tokens, places, start, table)
            return model.scores(features), *new

        wrap = eg.compile if compiled else lambda function: function
        self._read_last = wrap(read_last)
        self._read_all = wrap(read_all)

    # -- programs -----------------------------------------------------------------------------

    def last_scores(self, rows: Sequence[Rows]) -> Array:
        """The scores after the last token of each sequence, (sequences, vocabulary).

        All have one token, or there is one sequence of at most ``ROWS``.
        """
        inputs = self._inputs(rows)
        length = inputs.tensors[0].shape[1]
        last = np.arange(inputs.batch, dtype=np.int64) * length  # among all B * T rows
        last[: len(rows)] += [len(row.tokens) - 1 for row in rows]
        with evaluating(self.modules):
            scores, keys, values = self._read_last(*inputs.tensors, eg.from_numpy(last))
        self._keep(rows, keys, values)
        return scores.numpy()[: len(rows)]

    def all_scores(self, row: Rows) -> Array:
        """The scores after each of at most ``ROWS`` tokens of a sequence, (T, vocabulary)."""
        inputs = self._inputs([row])
        with evaluating(self.modules):
            scores, keys, values = self._read_all(*inputs.tensors)
        self._keep([row], keys, values)
        return scores.numpy()[0, : len(row.tokens)]

    def copy_page(self, source: int, target: int) -> None:
        """Give one page the contents of another."""
        for memory in (self._key_memory, self._value_memory):
            memory[:, target] = memory[:, source]

    def _inputs(self, rows: Sequence[Rows]) -> Inputs:
        longest = max(len(row.tokens) for row in rows)
        length = 1 if longest == 1 else ROWS
        batch = next(size for size in BATCHES if size >= len(rows))
        tokens = np.zeros((batch, length), np.int64)
        start = np.zeros(batch, np.int64)
        table = np.zeros((batch, pages_for(self.context)), np.int64)
        start[: len(rows)] = [row.start for row in rows]
        for i, row in enumerate(rows):
            tokens[i, : len(row.tokens)] = row.tokens
            used = pages_for(row.start)
            table[i, :used] = row.pages[:used]
        places = np.minimum(start[:, None] + np.arange(length), self.context - 1)
        return Inputs(batch, tuple(map(eg.from_numpy, (tokens, places, start, table))))

    def _keep(self, rows: Sequence[Rows], keys: eg.Tensor, values: eg.Tensor) -> None:
        """Write new keys and values, (layers, B, T, nkv, hs), into the pages of the sequences."""
        slots = [(i, t) for i, row in enumerate(rows) for t in range(len(row.tokens))]
        row_of, offset = np.array(slots).T
        place = np.array([rows[i].start + t for i, t in slots])
        page = np.array([rows[i].pages[(rows[i].start + t) // PAGE] for i, t in slots])
        for memory, new in ((self._key_memory, keys), (self._value_memory, values)):
            memory[:, page, place % PAGE] = new.numpy()[:, row_of, offset]

    # -- before the first request -------------------------------------------------------------

    def prepare(self, batches: Sequence[int] = BATCHES, verify: int = 0) -> None:
        """Compile all programs that will be needed, on tokens that leave no trace.

        ``verify``: also those that score several tokens of one sequence.
        """
        self.last_scores([Rows([0, 0], 0, [0])])
        if verify:
            self.all_scores(Rows([0, 0], 0, [0]))
        for size in batches:
            self.last_scores([Rows([0], 0, [0])] * size)
        self._key_memory[:, 0] = 0
        self._value_memory[:, 0] = 0

    def pool_bytes(self) -> int:
        return int(self._key_memory.nbytes + self._value_memory.nbytes)


class Inputs(NamedTuple):
    """The arguments of a program and how many sequences it has room for."""

    batch: int
    tensors: tuple[eg.Tensor, ...]
