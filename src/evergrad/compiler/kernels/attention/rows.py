"""Attention as one op: its rows of the op table, and their evaluation by NumPy.

The rows occur only in graphs that :func:`.passes.attention.match.recognise` has made.
``attention(q, k, v, *masks)`` gives the result and, for each query, a level and a factor, so that
its probabilities are ``exp(score - level) * factor``; ``attention_backward(q, k, v, g, y, stats,
*masks)`` gives the gradients of q, k and v. Shapes: q is (..., groups * length, width), k and v are
(..., keys, width); several heads of queries that share keys are ``groups`` of one longer head. A
score goes through ``steps``, each with a number: a factor, or what takes the place of a score that
a mask leaves out; masks are transposed: (..., keys, length) or (..., keys, 1). With
``dropout`` random arguments follow the masks: bits, or a position in a stream. The dimensions of a
result may have another ``order``, the last one last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evergrad.compiler.kernels.random_rows import counted_mask, unpack
from evergrad.core import dtypes
from evergrad.core.op import NONDIFFERENTIABLE, Op
from evergrad.core.row_facts import lowered
from evergrad.core.shapes import Shape, TensorType, tensor_type

if TYPE_CHECKING:
    from evergrad.core.types import Array


Steps = tuple[tuple[str, float], ...]
MASKS = ("keep", "drop", "add")
# Dimensions of a batch that the kernels can take.
BATCH_DIMS = 3


class Dropout(NamedTuple):
    """Dropout of weights: each is kept with a probability and scaled. ``counted``: two arguments
    are a position in a random stream; otherwise one holds bits."""

    keep: float
    scale: float
    counted: bool

    @property
    def drawn(self) -> int:
        """The number of random arguments."""
        return 2 if self.counted else 1

    def factors(self, drawn: Any, size: Shape) -> Array:
        """The factors of weights of a shape."""
        if self.counted:
            seed, offset = drawn
            mask = counted_mask(seed, offset, self.keep, size)
        else:
            (words,) = drawn
            mask = unpack(words, size)
        return mask.astype(np.float32) * np.float32(self.scale)


def batch_of(*types: TensorType) -> Shape:
    """The dimensions before rows and columns."""
    return np.broadcast_shapes(*(t.shape[:-2] for t in types))


Order = tuple[int, ...]


def laid_out(shape: Shape, order: Order) -> Shape:
    """A shape with its dimensions permuted."""
    return tuple(shape[d] for d in order)


def way_back(order: Order) -> Order:
    """The inverse of a permutation."""
    return tuple(order.index(d) for d in range(len(order)))


def _forward_type(
    q: TensorType, k: TensorType, v: TensorType, *masks: TensorType, steps: Steps, groups: int,
    dropout: Dropout | None, empty_is_zero: bool, order: Order,
) -> tuple[TensorType, ...]:  # fmt: skip
    batch, rows = batch_of(q, k, v), q.shape[-2]
    stats = (*batch, groups, 2, rows // groups)
    return (
        tensor_type(laid_out((*batch, rows, v.shape[-1]), order), dtypes.float32),
        tensor_type(stats, dtypes.float32),
    )


def _backward_type(
    q: TensorType, k: TensorType, v: TensorType, *others: TensorType, steps: Steps, groups: int,
    dropout: Dropout | None, orders: tuple[Order, ...],
) -> tuple[TensorType, ...]:  # fmt: skip
    batch = batch_of(q, k, v)
    return tuple(
        tensor_type(laid_out((*batch, *t.shape[-2:]), order), dtypes.float32)
        for t, order in zip((q, k, v), orders, strict=True)
    )


def _scores(q: object, k: Any, masks: Any, steps: Steps, groups: int) -> tuple[Array, Array]:
    """The scores by head of queries, and which of them masks keep."""
    s = _by_query_head(q @ k.swapaxes(-1, -2), groups)
    kept = np.ones(s.shape, bool)
    given = iter(masks)
    for kind, number in steps:
        mask: Any = next(given).swapaxes(-1, -2) if kind in MASKS else None
        if kind == "scale":
            s = s * np.float32(number)
        elif kind == "add":
            s = s + mask
        else:
            seen: Any = np.tri(*s.shape[-2:], dtype=np.bool_) if kind == "causal" else mask
            seen = ~seen if kind == "drop" else seen
            s = np.where(seen, s, np.float32(number))
            kept = kept & seen
    return s, kept


def _by_query_head(x: Any, groups: int) -> Array:
    *lead, rows, width = x.shape
    if groups > 1:
        lead[-1] *= groups
    result: Array = x.reshape(*lead, rows // groups, width)
    return result


def _dropped(weights: Any, given: Any, dropout: Dropout | None) -> Any:
    """Weights, or their cotangents, after dropout, whose arguments are the last."""
    if dropout is None:
        return weights
    return weights * dropout.factors(given[-dropout.drawn :], weights.shape)


def _forward_eval(
    q: Array, k: Array, v: Array, *given: object, steps: Steps, groups: int,
    dropout: Dropout | None,
    empty_is_zero: bool, order: Order,
) -> tuple[object, object]:  # fmt: skip
    s, _ = _scores(q, k, given, steps, groups)
    top = s.max(-1, keepdims=True)
    level = np.where(top == -np.inf, np.float32(0), top)
    powers = np.exp(s - level)
    total = powers.sum(-1, keepdims=True)
    if empty_is_zero:
        total = np.where(total == 0, np.float32(1), total)
    batch = np.broadcast_shapes(*(x.shape[:-2] for x in (q, k, v)))
    rows = q.shape[-2]
    y = _dropped(powers / total, given, dropout).reshape(*batch, rows, -1) @ v
    both = [x.reshape(*batch, groups, rows // groups) for x in (level, 1 / total)]
    return y.transpose(order), np.stack(both, -2)


def _backward_eval(
    q: Array, k: Array, v: Array, g: Array, y: Array, stats: Any, *given: object, steps: Steps,
    groups: int,
    dropout: Dropout | None, orders: tuple[Order, ...],
) -> tuple[object, ...]:  # fmt: skip
    s, kept = _scores(q, k, given, steps, groups)
    level, factor = (stats[..., n, :].reshape(*s.shape[:-1], 1) for n in (0, 1))
    p = np.exp(s - level) * factor
    slope = _dropped(_by_query_head(g @ v.swapaxes(-1, -2), groups), given, dropout)
    delta = _by_query_head((g * y).sum(-1, keepdims=True), groups)
    scale = np.prod([number for kind, number in steps if kind == "scale"], dtype=np.float32)
    ds = np.where(kept, p * (slope - delta), np.float32(0)) * scale
    shared = (*y.shape[:-1], s.shape[-1])
    w, ds = _dropped(p, given, dropout).reshape(shared), ds.reshape(shared)
    found = ds @ k, ds.swapaxes(-1, -2) @ q, w.swapaxes(-1, -2) @ g
    return tuple(x.transpose(order) for x, order in zip(found, orders, strict=True))


def _row(
    name: str,
    type: Callable[..., tuple[TensorType, ...]],
    evaluate: Callable[..., object],
    outputs: int,
    doc: str,
    strided: bool = False,
) -> Op:
    emit = lowered("kernels.attention", strided=strided)
    return Op(
        name, family="custom", type=type, eval=evaluate, vjp=NONDIFFERENTIABLE, jvp=None,
        batch=None, outputs=outputs, emit=emit, doc=doc,
    )  # fmt: skip


ATTENTION = _row("attention", _forward_type, _forward_eval, 2, "Attention, and its statistics.")
ATTENTION_BACKWARD = _row(
    "attention_backward", _backward_type, _backward_eval, 3, "The gradients of attention.", True
)
