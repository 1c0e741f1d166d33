"""Conversations in rows of one length: packed several to a row, or padded one to a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core.tensor import Tensor, from_array
from evergrad.tokenizers.chat import Example

if TYPE_CHECKING:
    from evergrad.core.types import Array

IGNORED = -100  # a place whose next token is not learned
_PADDING = -1  # the segment of places that hold nothing


def pack(
    examples: Sequence[Example], context: int, rows: int, generator: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, those that follow (or ``IGNORED``), and segments, each (rows, context).

    Examples are drawn until the next does not fit a row; what follows their last answer is left
    out, and one that is longer than a row keeps its end, where that answer is.
    """
    tokens = np.zeros((rows, context), np.int64)
    following = np.full((rows, context), IGNORED, np.int64)
    segments = np.full((rows, context), _PADDING, np.int64)
    drawn = generator.randint(0, len(examples), (rows * context + 1,), np.dtype(np.int64))
    waiting = iter(drawn.tolist())
    chosen = _inputs(examples[next(waiting)], context)
    for row in range(rows):
        start = segment = 0
        while start + len(chosen[0]) <= context:
            end = start + len(chosen[0])
            tokens[row, start:end], following[row, start:end] = chosen
            segments[row, start:end] = segment
            start, segment = end, segment + 1
            chosen = _inputs(examples[next(waiting)], context)
    return from_array(tokens), from_array(following), from_array(segments)


def pad(examples: Sequence[Example], context: int) -> tuple[Tensor, Tensor]:
    """Tokens and those that follow (or ``IGNORED``), each (examples, context), one in a row."""
    tokens = np.zeros((len(examples), context), np.int64)
    following = np.full((len(examples), context), IGNORED, np.int64)
    for row, example in enumerate(examples):
        own, after = _inputs(example, context)
        tokens[row, : len(own)], following[row, : len(own)] = own, after
    return from_array(tokens), from_array(following)


def _inputs(example: Example, context: int) -> tuple[Array, Array]:
    """What is read, and what is to be predicted after each token."""
    (places,) = np.nonzero(np.array(example.learned, bool))
    end = places[-1] + 1 if len(places) else len(example.tokens)
    tokens = np.array(example.tokens, np.int64)[:end][-context - 1 :]
    learned = np.array(example.learned, bool)[:end][-context - 1 :]
    return tokens[:-1], np.where(learned[1:], tokens[1:], IGNORED)
