"""Connectionist temporal classification: the probability of a sequence over all its alignments.

A plain function over rows. Labels and lengths are read as numbers, so they cannot be traced; the
recursion over time is made of rows and differentiated like any other code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from evergrad.core.autocast import autocast_policy
from evergrad.core.row_facts import AutocastPolicy
from evergrad.core.tensor import Tensor, from_array
from evergrad.errors import ShapeError
from evergrad.ops.composite.losses import chosen_reduction, reduced
from evergrad.ops.composite.padding import pad
from evergrad.ops.rows.elementwise.basic import exp, log, maximum, where
from evergrad.ops.rows.indexing.scatter import gather
from evergrad.ops.rows.movement.slices import narrow, select
from evergrad.ops.rows.movement.views import expand, reshape
from evergrad.ops.rows.reduce.extrema import amax
from evergrad.ops.rows.reduce.sums import sum as total
from evergrad.ops.surface.handles import detach

Array = np.ndarray[Any, Any]

# The logarithm of "impossible": finite, so that differences of it are numbers.
_NEVER = -1e30


@autocast_policy(AutocastPolicy.FLOAT32)
def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0,
    reduction: str = "mean", zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """Minus the logarithm of the probability of the targets, for ``log_probs`` [T, N, C].

    The gradient is the derivative by ``log_probs``. PyTorch's already contains the step through
    ``log_softmax``; behind a ``log_softmax`` both give the same.
    """
    reduction = chosen_reduction(reduction, None, None)
    single = log_probs.ndim == 2
    if single:
        log_probs = reshape(log_probs, (log_probs._type.shape[0], 1, log_probs._type.shape[1]))
    steps, samples, classes = log_probs._type.shape
    frames, lengths = _lengths(input_lengths), _lengths(target_lengths)
    _check_lengths(samples, steps, frames, lengths)
    if not 0 <= blank < classes:
        raise RuntimeError("blank must be in label range")
    path = _with_blanks(_rows(targets.array(), lengths), blank)
    scores = _scores(log_probs, path)
    loss = -_of_ends(_forward(scores, path, blank, frames, lengths), lengths)
    impossible = detach(loss) > -_NEVER / 10
    loss = where(impossible, 0.0 if zero_infinity else math.inf, loss)
    if reduction == "mean":
        loss = loss / from_array(np.maximum(lengths, 1).astype(loss.dtype.np))
    return reduced(reshape(loss, ()) if single else loss, reduction)


def _lengths(lengths: Any) -> Array:
    values = lengths.array() if isinstance(lengths, Tensor) else np.array(lengths)
    return values.reshape(-1).astype(np.int64)


def _check_lengths(samples: int, steps: int, frames: Array, lengths: Array) -> None:
    for name, given in (("input_lengths", frames), ("target_lengths", lengths)):
        if len(given) != samples:
            raise ShapeError(f"{name} must be of size batch_size, not {len(given)} for {samples}")
    if samples and (frames.max() > steps or frames.min() < 0):
        raise RuntimeError(
            f"Expected input_lengths to have value at most {steps}, but got value {frames.max()}"
        )


def _rows(targets: Array, lengths: Array) -> Array:
    """The targets as [N, S], also if they were given one after the other."""
    longest = int(lengths.max(initial=0))
    if targets.ndim == 2:
        if targets.shape[1] < longest:
            raise ShapeError(
                f"Expected tensor to have size at least {longest} at dimension 1, but got size "
                f"{targets.shape[1]}"
            )
        return targets[:, :longest]
    rows = np.zeros((len(lengths), longest), np.int64)
    begin = 0
    for row, length in zip(rows, lengths, strict=True):
        row[:length] = targets[begin : begin + length]
        begin += length
    return rows


def _with_blanks(rows: Array, blank: int) -> Array:
    """The labels with blanks before, between and behind: the states that paths go through."""
    path = np.full((len(rows), 2 * rows.shape[1] + 1), blank, np.int64)
    path[:, 1::2] = rows
    return path


def _scores(log_probs: Tensor, path: Array) -> Tensor:
    """For every time the logarithms of the states' labels: [T, N, states]."""
    steps = log_probs._type.shape[0]
    return gather(log_probs, 2, expand(from_array(path), (steps, *path.shape)))


def _forward(scores: Tensor, path: Array, blank: int, frames: Array, lengths: Array) -> Tensor:
    """The logarithms of the probability of being in each state at each sample's last time."""
    steps = scores._type.shape[0]
    states = np.arange(path.shape[1])
    begins = (states < 2) & (states <= 2 * lengths[:, None])
    skips = np.zeros(path.shape, bool)  # a blank between two different labels may be left out
    skips[:, 2:] = (path[:, 2:] != blank) & (path[:, 2:] != path[:, :-2])
    may_skip = from_array(skips)
    reached = where(from_array(begins), select(scores, 0, 0), _NEVER)
    for step in range(1, steps):
        moved = _moved(reached, may_skip) + select(scores, 0, step)
        if step < frames.min(initial=steps):
            reached = moved
        else:
            reached = where(from_array((step < frames)[:, None]), moved, reached)
    return reached


def _moved(reached: Tensor, may_skip: Tensor) -> Tensor:
    """One step on: from the state itself, the one before, or the one before that."""
    count = reached._type.shape[1]
    before = pad(reached, (2, 0), value=_NEVER)
    one, two = narrow(before, 1, 1, count), narrow(before, 1, 0, count)
    return _log_of_sum([reached, one, where(may_skip, two, _NEVER)])


def _log_of_sum(parts: Sequence[Tensor]) -> Tensor:
    largest = detach(parts[0])
    for part in parts[1:]:
        largest = maximum(largest, detach(part))
    sums = exp(parts[0] - largest)
    for part in parts[1:]:
        sums = sums + exp(part - largest)
    return log(sums) + largest


def _of_ends(reached: Tensor, lengths: Array) -> Tensor:
    """The logarithm of the probability of ending in the last label or the blank behind it."""
    states = np.arange(reached._type.shape[1])
    last = 2 * lengths[:, None]
    ends = where(from_array((states == last) | (states == last - 1)), reached, _NEVER)
    largest = amax(detach(ends), 1, True)
    return log(total(exp(ends - largest), 1)) + reshape(largest, (len(lengths),))
