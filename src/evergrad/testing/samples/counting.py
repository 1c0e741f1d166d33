"""Samples of places in sorted sequences and counts in bins."""

import numpy as np

from evergrad.testing.samples import distinct, integers, normal, sample

nan = np.nan

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

sample("histc", lambda ns, x: ns.histc(x, 4), normal(3, 4))
sample("histc", lambda ns, x: x.histc(3, -1, 1), normal(12), label="range")
sample("histc", lambda ns, x: x.histc(2), np.ones(3), label="of equals")
sample("histc", lambda ns, x: x.histc(2, 0, 1), np.array([nan, 0.0, 1.0, 0.5, 2.0]), label="NaN")
sample("histc", lambda ns, x: x.histc(3), normal(0), label="empty")
