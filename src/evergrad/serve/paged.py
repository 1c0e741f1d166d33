"""A GPT over a paged key-value pool, as compiled programs of fixed shapes.

A program takes B sequences with T new tokens each and a table of their pages. It attends to what
the tables name and to the new tokens, and returns the scores and the new keys and values, which are
then written into the pool.

What a sequence computes does not depend on what else is in its batch, to the bit. Attention reads a
sequence's own pages alone, in blocks that begin with pages. Weights are packed
(:mod:`evergrad.models.packed`): one kernel multiplies any number of rows and adds up each in the
same order. Prompts are read by programs of more rows; of these only such are used as give the bits
of the narrowest, which is found out before the first prompt is read.
"""

# Modules called give Any, and so do methods of tensors, which are attached at run time.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import evergrad as eg
from evergrad.core.types import Array
from evergrad.models.gpt import GPT
from evergrad.models.model import evaluating
from evergrad.models.packed import pack
from evergrad.ops.rows.paged_attention import paged_attention
from evergrad.serve.pages import PAGE, pages_for

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction
    from evergrad.nn.module import Module

ROWS = 32  # sequences of a program that decodes
BATCHES = (1, 2, 4, 8, 16, ROWS)
SCORED = 16  # tokens of one sequence that are all scored by one program
# Sequences and new tokens of each, of the programs that read prompts; the first is the narrowest.
WIDE = ((1, 32), (4, 32), (1, 128))


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
        self.model: GPT = pack(model)
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

        self._compiled = compiled
        self._prompt_shapes: tuple[tuple[int, int], ...] = ()
        wrap: AnyFunction = eg.compile if compiled else lambda function: function
        self._read_last = wrap(read_last)
        self._read_all = wrap(read_all)

    # -- programs -----------------------------------------------------------------------------

    def last_scores(self, rows: Sequence[Rows]) -> Array:
        """The scores after the last token of each sequence, (sequences, vocabulary).

        All have one token, or there is one sequence of at most ``SCORED``.
        """
        length = 1 if max(len(row.tokens) for row in rows) == 1 else SCORED
        return self._last_scores(rows, next(b for b in BATCHES if b >= len(rows)), length)

    def prompt_scores(self, rows: Sequence[Rows]) -> Array:
        """The scores after the last of some tokens of prompts, (sequences, vocabulary).

        Each begins with a page; they fit into one of :attr:`prompt_shapes`.
        """
        longest = max(len(row.tokens) for row in rows)
        shapes = self.prompt_shapes
        return self._last_scores(
            rows, *next(s for s in shapes if s[0] >= len(rows) and s[1] >= longest)
        )

    def read_prompt(self, row: Rows) -> Array:
        """The scores after the last of any number of tokens of a prompt, (vocabulary)."""
        tokens, at = row.tokens, 0
        lengths = [length for count, length in self.prompt_shapes if count == 1]
        while True:
            fitting = [n for n in lengths if n <= len(tokens) - at]
            part = tokens[at : at + max(fitting, default=min(lengths))]
            scores = self.prompt_scores([Rows(part, row.start + at, row.pages)])
            at += len(part)
            if at == len(tokens):
                return scores[0]

    def _last_scores(self, rows: Sequence[Rows], batch: int, length: int) -> Array:
        tensors = self._inputs(rows, batch, length)
        last = np.arange(batch, dtype=np.int64) * length  # among all B * T rows
        last[: len(rows)] += [len(row.tokens) - 1 for row in rows]
        with evaluating(self.modules):
            scores, keys, values = self._read_last(*tensors, eg.from_numpy(last))
        self._keep(rows, keys, values)
        return scores.numpy()[: len(rows)]

    @property
    def prompt_shapes(self) -> tuple[tuple[int, int], ...]:
        """Sequences and tokens of the programs that read prompts; their rows have the same bits."""
        if not self._prompt_shapes:
            if not self._compiled or self.context < WIDE[0][1]:
                self._prompt_shapes = ((1, SCORED),)
            else:
                self._prompt_shapes = (WIDE[0], *filter(self._agrees, WIDE[1:]))
        return self._prompt_shapes

    def _agrees(self, shape: tuple[int, int]) -> bool:
        """Whether the program of a shape gives the bits of the narrowest one."""
        batch, length = shape
        _, narrow = WIDE[0]
        if length > self.context:
            return False
        rng = np.random.default_rng(0)
        tokens = rng.integers(self.vocabulary, size=shape).tolist()
        found = self._new_values([Rows(row, 0, []) for row in tokens], batch, length)
        for number, row in enumerate(tokens):
            expected = self._new_values([Rows(row[:narrow], 0, [])], *WIDE[0])
            if not np.array_equal(found[:, :, number, :narrow], expected[:, :, 0]):
                return False
        return True

    def _new_values(self, rows: Sequence[Rows], batch: int, length: int) -> Array:
        """Keys and values of new tokens without a past, (2, layers, B, T, nkv, hs); not kept."""
        tensors = self._inputs(rows, batch, length)
        last = eg.from_numpy(np.zeros(batch, np.int64))
        with evaluating(self.modules):
            _, *new = self._read_last(*tensors, last)
        return np.stack([x.numpy() for x in new])

    def all_scores(self, row: Rows) -> Array:
        """The scores after each of at most ``SCORED`` tokens of a sequence, (T, vocabulary)."""
        tensors = self._inputs([row], 1, SCORED)
        with evaluating(self.modules):
            scores, keys, values = self._read_all(*tensors)
        self._keep([row], keys, values)
        return scores.numpy()[0, : len(row.tokens)]

    def copy_page(self, source: int, target: int) -> None:
        """Give one page the contents of another."""
        for memory in (self._key_memory, self._value_memory):
            memory[:, target] = memory[:, source]

    def _inputs(
        self, rows: Sequence[Rows], batch: int, length: int
    ) -> tuple[eg.Tensor, ...]:  # (B, T), (B, T), (B), (B, P)
        tokens = np.zeros((batch, length), np.int64)
        start = np.zeros(batch, np.int64)
        table = np.zeros((batch, pages_for(self.context)), np.int64)
        start[: len(rows)] = [row.start for row in rows]
        for i, row in enumerate(rows):
            tokens[i, : len(row.tokens)] = row.tokens
            used = pages_for(row.start)
            table[i, :used] = row.pages[:used]
        places = np.minimum(start[:, None] + np.arange(length), self.context - 1)
        return tuple(map(eg.from_numpy, (tokens, places, start, table)))

    def _keep(self, rows: Sequence[Rows], keys: eg.Tensor, values: eg.Tensor) -> None:
        """Write new keys and values, (layers, B, T, nkv, hs), into the pages of the sequences."""
        both = ((self._key_memory, keys.numpy()), (self._value_memory, values.numpy()))
        if all(len(row.tokens) == 1 for row in rows):
            page = [row.pages[row.start // PAGE] for row in rows]
            place = [row.start % PAGE for row in rows]
            for memory, new in both:
                memory[:, page, place] = new[:, : len(rows), 0]
            return
        for number, row in enumerate(rows):
            end = row.start + len(row.tokens)
            for first in range(row.start // PAGE * PAGE, end, PAGE):
                begin, last = max(first, row.start), min(first + PAGE, end)
                owned = row.pages[first // PAGE]
                for memory, new in both:
                    part = new[:, number, begin - row.start : last - row.start]
                    memory[:, owned, begin - first : last - first] = part

    # -- before the first request -------------------------------------------------------------

    def prepare(self, batches: Sequence[int] = BATCHES, verify: int = 0) -> None:
        """Compile all programs that will be needed, on tokens that leave no trace.

        ``verify``: also those that score several tokens of one sequence.
        """
        for count, length in self.prompt_shapes:
            self._new_values([Rows([0] * length, 0, [])] * count, count, length)
        if verify:
            self.all_scores(Rows([0, 0], 0, [0]))
        for size in batches:
            self.last_scores([Rows([0], 0, [0])] * size)
        self._key_memory[:, 0] = 0
        self._value_memory[:, 0] = 0

    def program_bytes(self) -> int:
        """The arenas of the programs that are compiled."""
        if not self._compiled:
            return 0
        return sum(program.arena.nbytes for program in (self._read_last, self._read_all))

    def pool_bytes(self) -> int:
        return int(self._key_memory.nbytes + self._value_memory.nbytes)
