"""Samples of places in sorted sequences and counts in bins."""

from typing import Any

import numpy as np

from evergrad.core.bind import bind
from evergrad.core.tensor import Tensor
from evergrad.ops.rows.reduce.counting import FIRST_OF_SAME
from evergrad.ops.rows.reduce.histogram import HISTOGRAM_EDGES
from evergrad.testing.samples import distinct, integers, normal, sample

__all__: list[str] = []  # samples are registered, nothing is exported

nan = np.nan


def _edges(x: Tensor) -> object:
    return bind(HISTOGRAM_EDGES, x, bins=4, dim=0)


_SEQUENCE = np.array([1.0, 3.0, 3.0, 5.0])
_VALUES = np.array([[0.0, 3.0, 9.0], [nan, 5.0, 4.5]])

sample("searchsorted", lambda ns, s, v: ns.searchsorted(s, v), _SEQUENCE, _VALUES,
       reference=np.searchsorted)  # fmt: skip
sample("searchsorted", lambda ns, s, v: ns.searchsorted(s, v, right=True), _SEQUENCE, _VALUES,
       reference=lambda s, v: np.searchsorted(s, v, "right"), label="right")  # fmt: skip
sample("searchsorted", lambda ns, s, v: ns.searchsorted(s, v, side="right", out_int32=True),
       np.sort(distinct(2, 4)), normal(2, 3), label="lanes")  # fmt: skip
sample("searchsorted", lambda ns, s: ns.searchsorted(s, 3), _SEQUENCE, label="number")
sample("searchsorted", lambda ns, s, v, order: ns.searchsorted(s, v, sorter=order), _SEQUENCE[::-1],
       _VALUES, np.array([3, 2, 1, 0]), label="sorter")  # fmt: skip
sample("searchsorted", lambda ns, s, v: ns.bucketize(v, s), _SEQUENCE, _VALUES, label="buckets")
sample("searchsorted", lambda ns, s, v: ns.bucketize(v, s), integers(0, 3, 1), integers(0, 3, 0))

sample("first_of_same", lambda ns, x: bind(FIRST_OF_SAME, x), np.array([3, 1, 3, 0, 1]),
       reference=lambda x: np.array([list(x).index(n) for n in x]), torch=False)  # fmt: skip
sample("first_of_same", lambda ns, x: bind(FIRST_OF_SAME, x), np.zeros(0, np.int64), torch=False,
       label="empty")  # fmt: skip

sample("histc", lambda ns, x: ns.histc(x, 4), normal(3, 4))
sample("histc", lambda ns, x: x.histc(3, -1, 1), normal(12), label="range")
sample("histc", lambda ns, x: x.histc(2), np.ones(3), label="of equals")
sample("histc", lambda ns, x: x.histc(2, 0, 1), np.array([nan, 0.0, 1.0, 0.5, 2.0]), label="NaN")
sample("histc", lambda ns, x: x.histc(3), normal(0), label="empty")

_PLAIN: dict[str, Any] = {"torch": False, "dtypes": ("float32",)}
sample("histogram", lambda ns, x: ns.histogram(x, 4, range=(-1.0, 1.0)).hist, normal(12),
       reference=lambda x: np.histogram(x, 4, (-1, 1))[0], **_PLAIN)  # fmt: skip
sample("histogram", lambda ns, x, w: ns.histogram(x, 3, range=(-2.0, 2.0), weight=w).hist,
       normal(3, 4), distinct(3, 4), label="weight", **_PLAIN,
       reference=lambda x, w: np.histogram(x, 3, (-2, 2), weights=w)[0])  # fmt: skip
sample("histogram", lambda ns, x: ns.histogram(x, 5, range=(-2.0, 2.0), density=True).hist,
       normal(12), label="density", **_PLAIN,
       reference=lambda x: np.histogram(x, 5, (-2, 2), density=True)[0])  # fmt: skip
sample("histogram", lambda ns, x, e: ns.histogram(x, e).hist, normal(9), _SEQUENCE - 3,
       reference=lambda x, e: np.histogram(x, e)[0], label="edges", **_PLAIN)  # fmt: skip
sample("histogram", lambda ns, x: ns.histogramdd(x, [2, 3], range=[-1.0, 1.0, -2.0, 2.0]).hist,
       normal(8, 2), label="grid", **_PLAIN,
       reference=lambda x: np.histogramdd(x, [2, 3], [(-1, 1), (-2, 2)])[0])  # fmt: skip
sample("histogram_edges", lambda ns, x: _edges(x), normal(7), **_PLAIN,
       reference=lambda x: np.linspace(x.min(), x.max(), 5))  # fmt: skip
