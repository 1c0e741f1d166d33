"""Connectionist temporal classification: the probability of a sequence over all its alignments.

A plain function over rows: labels and lengths are tensors that need not be read, and the recursion
over time is differentiated like any other code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from evergrad.core import dtypes
from evergrad.core.autocast import autocast_policy
from evergrad.core.bind import bind, cast
from evergrad.core.row_facts import AutocastPolicy
from evergrad.core.tensor import Tensor, from_array
from evergrad.core.tracing import is_known
from evergrad.errors import ShapeError
from evergrad.ops.composite.losses import chosen_reduction, reduced
from evergrad.ops.composite.padding import pad
from evergrad.ops.rows.check import require
from evergrad.ops.rows.creation.constants import arange, full_like
from evergrad.ops.rows.elementwise.basic import exp, log, maximum, where
from evergrad.ops.rows.elementwise.clamp import clamp
from evergrad.ops.rows.indexing.index import INDEX
from evergrad.ops.rows.indexing.scatter import gather
from evergrad.ops.rows.movement.joining import stack
from evergrad.ops.rows.movement.slices import narrow, select
from evergrad.ops.rows.movement.views import expand, reshape, squeeze, unsqueeze
from evergrad.ops.rows.reduce.extrema import amax
from evergrad.ops.rows.reduce.scan import cumsum
from evergrad.ops.rows.reduce.sums import sum as total
from evergrad.ops.surface.handles import detach

# The logarithm of "impossible": finite, so that differences of it are numbers.
_NEVER = -1e30


@autocast_policy(AutocastPolicy.FLOAT32)
def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: object, target_lengths: object,
    blank: int = 0, reduction: str = "mean", zero_infinity: bool = False,
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
    for name, given in (("input_lengths", frames), ("target_lengths", lengths)):
        if given._type.numel != samples:
            raise ShapeError(
                f"{name} must be of size batch_size, not {given._type.numel} for {samples}"
            )
    if samples:
        require(
            (frames >= 0) & (frames <= steps), RuntimeError,
            lambda: f"Expected input_lengths to have value at most {steps}, but got value "
            f"{amax(frames)}",
        )  # fmt: skip
    if not 0 <= blank < classes:
        raise RuntimeError("blank must be in label range")
    path = _with_blanks(_rows(targets, lengths, blank), blank)
    reached = _forward(_scores(log_probs, path), path, blank, frames, lengths)
    loss = -_of_ends(reached, lengths)
    impossible = detach(loss) > -_NEVER / 10
    loss = where(impossible, 0.0 if zero_infinity else math.inf, loss)
    if reduction == "mean":
        loss = loss / cast(clamp(lengths, min=1), loss.dtype)
    return reduced(reshape(loss, ()) if single else loss, reduction)


def _lengths(lengths: object) -> Tensor:
    given = lengths if isinstance(lengths, Tensor) else from_array(np.array(lengths, np.int64))
    return cast(reshape(given, -1), dtypes.int64)


def _rows(targets: Tensor, lengths: Tensor, blank: int) -> Tensor:
    """The targets as [N, S], blank behind the end of each, also if they were given one after the
    other."""
    longest = _longest(targets, lengths)
    places = arange(longest)
    inside = places < unsqueeze(lengths, 1)
    if targets.ndim == 2:
        columns = targets._type.shape[1]
        require(
            lengths <= columns, ShapeError,
            lambda: f"Expected tensor to have size at least {amax(lengths)} at dimension 1, but "
            f"got size {columns}",
        )  # fmt: skip
        labels = narrow(targets, 1, 0, longest)
    else:
        begins = cumsum(lengths, 0) - lengths
        at = where(inside, unsqueeze(begins, 1) + places, 0)
        labels = bind(INDEX, targets, at, start=0, wrap=False) if longest else at
    return where(inside, cast(labels, dtypes.int64), blank)


def _longest(targets: Tensor, lengths: Tensor) -> int:
    """The largest target length; where it cannot be read, what the shape of the targets allows."""
    most = targets._type.shape[-1]
    if not is_known(lengths):
        return most
    longest = int(lengths.array().max(initial=0))
    return min(longest, most) if targets.ndim == 2 else longest


def _with_blanks(rows: Tensor, blank: int) -> Tensor:
    """The labels with blanks before, between and behind: the states that paths go through."""
    samples, longest = rows._type.shape
    pairs = stack([full_like(rows, blank), rows], 2)
    return pad(reshape(pairs, (samples, 2 * longest)), (0, 1), value=blank)


def _scores(log_probs: Tensor, path: Tensor) -> Tensor:
    """For every time the logarithms of the states' labels: [T, N, states]."""
    steps = log_probs._type.shape[0]
    return gather(log_probs, 2, expand(path, (steps, *path._type.shape)))


def _forward(scores: Tensor, path: Tensor, blank: int, frames: Tensor, lengths: Tensor) -> Tensor:
    """The logarithms of the probability of being in each state at each sample's last time."""
    steps = scores._type.shape[0]
    states = arange(path._type.shape[1])
    begins = (states < 2) & (states <= 2 * unsqueeze(lengths, 1))
    before = narrow(pad(path, (2, 0), value=blank), 1, 0, path._type.shape[1])
    # A blank between two different labels may be left out.
    may_skip = (path != blank) & (path != before) & (states >= 2)
    shortest = int(frames.array().min(initial=steps)) if is_known(frames) else 0
    started = select(scores, 0, 0) if steps else _NEVER
    reached = where(begins & unsqueeze(frames > 0, 1), started, _NEVER)
    # Without a time there is one path, with no label.
    reached = where((states == 0) & unsqueeze(frames == 0, 1), 0.0, reached)
    for step in range(1, steps):
        moved = _moved(reached, may_skip) + select(scores, 0, step)
        if step < shortest:
            reached = moved
        else:
            reached = where(unsqueeze(frames > step, 1), moved, reached)
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


def _of_ends(reached: Tensor, lengths: Tensor) -> Tensor:
    """The logarithm of the probability of ending in the last label or the blank behind it."""
    states = arange(reached._type.shape[1])
    last = 2 * unsqueeze(lengths, 1)
    ends = where((states == last) | (states == last - 1), reached, _NEVER)
    largest = amax(detach(ends), 1, True)
    return log(total(exp(ends - largest), 1)) + squeeze(largest, 1)
