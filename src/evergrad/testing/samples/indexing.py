"""Samples of rows that read and write at indices: ``index_*``, ``gather``, ``scatter_*``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core.bind import bind
from evergrad.ops.rows.indexing.index import INDEX_SUM
from evergrad.ops.rows.indexing.scatter import SCATTER_SUM
from evergrad.testing.samples import (
    Array,
    complex_normal,
    distinct,
    normal,
    positive,
    sample,
)

if TYPE_CHECKING:
    from evergrad.core.tensor import Tensor

__all__: list[str] = []  # samples are registered, nothing is exported


def at(*places: object) -> Array:
    """An index tensor."""
    return np.array(places, dtype=np.int64)


TWICE = at(1, 0, 1)
PAIRS = at([0, 2], [1, 1])

# -- index --------------------------------------------------------------------------------------

sample("index", lambda ns, x, i: ns.index_select(x, 0, i), normal(3, 2), TWICE,
       reference=lambda x, i: x[i])  # fmt: skip
sample("index", lambda ns, x, i: x.index_select(-1, i), normal(2, 3), TWICE,
       reference=lambda x, i: x[:, i])  # fmt: skip
sample("index", lambda ns, x, i: x.index_select(1, i), normal(2, 3, 2), TWICE.astype(np.int32),
       label="int32", reference=lambda x, i: x[:, i])  # fmt: skip
sample("index", lambda ns, x, i: x.index_select(0, i), normal(), at(0), label="of a number")
sample("index", lambda ns, x, i: x.index_select(0, i), normal(2, 3), at(1).reshape(()),
       label="by a number")  # fmt: skip
sample("index", lambda ns, x, i: x.index_select(0, i), normal(2, 3), at(), label="nothing")
sample("index", lambda ns, x, i: x.index_select(0, i), complex_normal(2, 2), TWICE, label="complex")
sample("index", lambda ns, x, i: ns.take(x, i), normal(2, 3), at([0, -1], [3, 3]), label="take",
       reference=np.take)  # fmt: skip
sample("index", lambda ns, x, i: x.t().take(i), normal(2, 3), at(1, -2), label="take strided")
sample("index", lambda ns, w, i: ns.embedding(w, i), normal(4, 3), PAIRS, label="embedding",
       reference=lambda w, i: w[i])  # fmt: skip


def _added(g: Tensor, *indices: object, start: int = 0, extents: object) -> object:
    return bind(INDEX_SUM, g, *indices, start=start, extents=extents)


def _sum_at(shape: tuple[int, ...], place: Any, value: Array) -> Array:
    out = np.zeros(shape)
    np.add.at(out, place, value)
    return out


sample("index_sum", lambda ns, g, i: _added(g, i, extents=(4,)), normal(3, 2), TWICE, torch=False,
       reference=lambda g, i: _sum_at((4, 2), i, g))  # fmt: skip
sample("index_sum", lambda ns, g, i: _added(g, i, start=1, extents=(3,)), normal(2, 2, 2),
       at(2, 2), torch=False, reference=lambda g, i: _sum_at((2, 3, 2), np.s_[:, i], g),
       label="inner dimension")  # fmt: skip
sample("index_sum", lambda ns, g, i: _added(g, i, extents=(3,)), normal(2, 2, 2),
       at([0, -1], [1, 0]), torch=False, reference=lambda g, i: _sum_at((3, 2), i, g),
       label="of rank 2")  # fmt: skip
sample("index_sum", lambda ns, g, i, j: _added(g, i, j, extents=(3, 2)), normal(2, 3, 2),
       at([0], [1]), at(0, 1, 1), torch=False,
       reference=lambda g, i, j: _sum_at((3, 2, 2), (i, j), g), label="two indices")  # fmt: skip
sample("index_sum", lambda ns, g, i: _added(g, i, extents=(3,)), normal(2), at(1).reshape(()),
       torch=False, reference=lambda g, i: _sum_at((3, 2), i, g), label="one place")  # fmt: skip
# Long rows for few places are added up in groups.
sample("index_sum", lambda ns, g, i: _added(g.expand(3, 5000), i, extents=(2,)), normal(3, 1),
       at(1, 0, 1), torch=False, reference=lambda g, i: _sum_at((2, 5000), i, g), dtypes=(),
       label="groups")  # fmt: skip

sample("index_add", lambda ns, x, i, y: ns.index_add(x, 0, i, y), normal(3, 2), at(2, 0, 2),
       normal(3, 2, seed=1))  # fmt: skip
sample("index_add", lambda ns, x, i, y: x.index_add(-1, i, y, alpha=2), normal(2, 3), TWICE,
       normal(2, 3, seed=1), label="alpha")  # fmt: skip
sample("index_add", lambda ns, x, i, y: x.index_add(0, i, y), normal(), at(0).reshape(()),
       normal(seed=1), label="number")  # fmt: skip
sample("index_add", lambda ns, x, i, y: x.index_add(1, i, y), normal(2, 2), at(), normal(2, 0),
       label="nothing")  # fmt: skip
sample("index_add", lambda ns, x, i, y: ns.index_put(x, (i,), y, True), normal(3, 2), at(1, -1, 1),
       normal(3, 2, seed=1), label="put")  # fmt: skip
sample("index_add", lambda ns, x, i, y: x.put(i, y, accumulate=True), normal(2, 3), at(0, -1, 0),
       normal(3, seed=1), label="put flat")  # fmt: skip
sample("index_add", lambda ns, x, i, y: (x * 1).index_add_(0, i, y), normal(3, 2), at(2, 0, 2),
       normal(3, 2, seed=1), label="in place")  # fmt: skip

sample("index_copy", lambda ns, x, i, y: ns.index_copy(x, 0, i, y), normal(3, 2), at(2, 0),
       normal(2, 2, seed=1))  # fmt: skip
sample("index_copy", lambda ns, x, i, y: x.index_copy(-1, i, y), normal(2, 3), at(1),
       normal(2, 1, seed=1))  # fmt: skip
sample("index_copy", lambda ns, x, i, y: x.index_copy(0, i, y), normal(2), at(), normal(0),
       label="nothing")  # fmt: skip
sample("index_copy", lambda ns, x, i: ns.index_fill(x, 1, i, 2.5), normal(2, 3), at(2, 0, 2),
       label="fill")  # fmt: skip
sample("index_copy", lambda ns, x, i, v: x.index_fill(0, i, v), normal(3, 2), at(2, 0, 0),
       normal(seed=1), label="fill with a tensor")  # fmt: skip
sample("index_copy", lambda ns, x, i, j, y: ns.index_put(x, (i, j), y), normal(2, 3, 2),
       at([0], [1]), at(0, 2), normal(2, seed=1), label="put")  # fmt: skip
sample("index_copy", lambda ns, x, i, y: ns.put(x, i, y), normal(2, 3), at([0, -1]),
       normal(2, seed=1), label="put flat")  # fmt: skip
sample("index_copy", lambda ns, x, i, y: (x * 1).index_copy_(1, i, y), normal(2, 3), at(2, 0),
       normal(2, 2, seed=1), label="in place")  # fmt: skip

sample("embedding", lambda ns, w, i: ns.embedding(w, i, padding_idx=3), normal(4, 3), PAIRS)
sample("embedding", lambda ns, w, i: ns.embedding(w, i, padding_idx=1), normal(4, 3), PAIRS,
       smooth=False, label="padding")  # fmt: skip
sample("embedding", lambda ns, w, i: ns.embedding(w, i, 0, scale_grad_by_freq=True), normal(4, 3),
       PAIRS, smooth=False, label="by frequency")  # fmt: skip
sample("embedding", lambda ns, w, i: ns.embedding(w, i, padding_idx=0), normal(4, 3),
       at(2).reshape(()), label="one")  # fmt: skip

# -- gather and scatter -------------------------------------------------------------------------

COLUMNS = at([0, 2, 1], [3, 3, 0])
ROWS = at([0, 1, 0], [1, 0, 2])

sample("gather", lambda ns, x, i: ns.gather(x, 1, i), normal(2, 4), COLUMNS,
       reference=lambda x, i: np.take_along_axis(x, i, 1))  # fmt: skip
sample("gather", lambda ns, x, i: x.gather(-2, i), normal(3, 4), ROWS, label="smaller index",
       reference=lambda x, i: np.take_along_axis(x[:, :3], i, 0))  # fmt: skip
sample("gather", lambda ns, x, i: x.gather(1, i), normal(2, 3, 2), at([[2, 0]], [[1, 1]]),
       label="inner dimension")  # fmt: skip
sample("gather", lambda ns, x, i: x.t().gather(0, i), normal(3, 2), at([1, 0, 1]), label="strided")
sample("gather", lambda ns, x, i: x.gather(0, i), normal(3), at(1).reshape(()), label="one")
sample("gather", lambda ns, x, i: x.gather(0, i), normal(), at(0, 0), label="of a number")
sample("gather", lambda ns, x, i: ns.take_along_dim(x, i, 1), normal(3, 3), at([2], [-1], [0]),
       label="take_along_dim", reference=lambda x, i: np.take_along_axis(x, i, 1))  # fmt: skip
sample("gather", lambda ns, x, i: ns.take_along_dim(x, i, 0), normal(3, 1), at([2, 0]),
       label="take_along_dim broadcast")  # fmt: skip
sample("gather", lambda ns, x, i: ns.take_along_dim(x, i), normal(2, 3), at([5, 0]),
       label="take_along_dim flat")  # fmt: skip

sample("scatter_sum", lambda ns, g, i: bind(SCATTER_SUM, g, i, dim=1, shape=(3, 4)), normal(2, 3),
       COLUMNS, torch=False,
       reference=lambda g, i: _sum_at((3, 4), (np.arange(2)[:, None], i), g))  # fmt: skip
sample("scatter_sum", lambda ns, g, i: bind(SCATTER_SUM, g, i, dim=0, shape=(3, 3)), normal(2, 3),
       ROWS, torch=False, reference=lambda g, i: _sum_at((3, 3), (i, np.arange(3)), g))  # fmt: skip

sample("scatter_add", lambda ns, x, i, y: ns.scatter_add(x, 1, i, y), normal(2, 4), COLUMNS,
       normal(2, 3, seed=1))  # fmt: skip
sample("scatter_add", lambda ns, x, i, y: x.scatter_add(-2, i, y), normal(3, 4), ROWS,
       normal(2, 3, seed=1))  # fmt: skip
sample("scatter_add", lambda ns, x, i, y: x.scatter_add(0, i, y), normal(3, 4), ROWS,
       normal(3, 4, seed=1), label="larger source", torch=False)  # fmt: skip
sample("scatter_add", lambda ns, x, i: x.scatter(1, i, 2.5, reduce="add"), normal(2, 4), COLUMNS,
       label="number")  # fmt: skip
sample("scatter_add", lambda ns, x, i, y: ns.scatter_reduce(x, 1, i, y, "sum", include_self=False),
       normal(2, 4), COLUMNS, normal(2, 3, seed=1), label="without self")  # fmt: skip
sample("scatter_add", lambda ns, x, i, y: x.scatter_reduce(1, i, y, "mean"), normal(2, 4), COLUMNS,
       normal(2, 3, seed=1), label="mean")  # fmt: skip
sample("scatter_add", lambda ns, x, i, y: x.scatter_reduce(0, i, y, "mean", include_self=False),
       normal(3, 4), ROWS, normal(2, 3, seed=1), label="mean without self")  # fmt: skip
sample("scatter_add", lambda ns, x, i, y: (x * 1).scatter_add_(1, i, y), normal(2, 4), COLUMNS,
       normal(2, 3, seed=1), label="in place")  # fmt: skip

sample("scatter", lambda ns, x, i, y: ns.scatter(x, 1, i, y), normal(2, 4), at([0, 2], [3, 1]),
       normal(2, 2, seed=1))  # fmt: skip
sample("scatter", lambda ns, x, i, y: x.scatter(0, i, y), normal(3, 4), at([2, 0, 1]),
       normal(1, 3, seed=1), label="first dimension")  # fmt: skip
sample("scatter", lambda ns, x, i: ns.scatter(x, 1, i, 2.5), normal(2, 4), COLUMNS, label="number")
sample("scatter", lambda ns, x, i: x.scatter(0, i, value=1), normal(3), at(2, 2), label="vector")
sample("scatter", lambda ns, x, i: x.scatter(0, i, 1.5), normal(), at(0), label="into a number")
sample("scatter", lambda ns, x, i, y: (x * 1).scatter_(1, i, y), normal(2, 4), at([0, 2], [3, 1]),
       normal(2, 2, seed=1), label="in place")  # fmt: skip

for fold in ("prod", "amax", "amin"):
    for include_self in (True, False):
        sample(
            "scatter_reduce",
            lambda ns, x, i, y, fold=fold, include_self=include_self: ns.scatter_reduce(
                x, 1, i, y, fold, include_self=include_self
            ),
            distinct(2, 4) + 0.02, COLUMNS, distinct(2, 3, seed=1) + 0.05,
            label=fold if include_self else f"{fold} without self",
        )  # fmt: skip
# PyTorch has no second derivative where there are zeros.
sample("scatter_reduce", lambda ns, x, i, y: x.scatter_reduce(0, i, y, "prod"), positive(3, 4),
       ROWS, at([0, 2, 1], [0, 3, 0]) * 1.0, torch=False, label="zeros, all orders")  # fmt: skip
sample("scatter_reduce", lambda ns, x, i, y: x.scatter_reduce(0, i, y, "prod"), positive(3, 4),
       ROWS, at([0, 2, 1], [0, 3, 0]) * 1.0, smooth=False, label="zeros")  # fmt: skip
sample("scatter_reduce", lambda ns, x, i, y: x.scatter_reduce(0, i, y, "amax"), np.ones((3, 4)),
       ROWS, np.ones((2, 3)), smooth=False, label="ties")  # fmt: skip
sample("scatter_reduce", lambda ns, x, i, y: x.index_reduce(1, i, y, "prod"), positive(2, 3),
       at(2, 2), positive(2, 2, seed=1), label="index_reduce")  # fmt: skip
sample("scatter_reduce", lambda ns, x, i, y: ns.index_reduce(x, 0, i, y, "amin"), distinct(3, 2),
       at(0, 0), distinct(2, 2, seed=1) + 0.05, label="index_reduce amin")  # fmt: skip
sample("scatter_reduce", lambda ns, x, i: x.scatter(1, i, 2.5, reduce="multiply"), normal(2, 4),
       COLUMNS, label="number")  # fmt: skip
