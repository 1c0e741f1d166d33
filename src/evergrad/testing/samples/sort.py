"""Samples of order along a dimension: sorted, the first few, the middle, quantiles."""

import numpy as np

from evergrad.core.tensor import Tensor
from evergrad.testing.samples import Array, booleans, distinct, integers, sample

__all__: list[str] = []  # samples are registered, nothing is exported

inf, nan = np.inf, np.nan

_BROKEN = np.array([[1.0, nan, 0.5, inf], [nan, -inf, nan, 2.0]])
_TIED = np.array([[2.0, 1.0, 2.0, 1.0], [3.0, 3.0, 3.0, 0.0]])


def _apart(*shape: int) -> Array:
    """Positive numbers that stay distinct as integers."""
    x = distinct(*shape)
    return np.asarray((x - x.min()) * 10 + 1)


# -- sorting ------------------------------------------------------------------------------------

sample("argsort", lambda ns, x: ns.sort(x), distinct(2, 4),
       reference=lambda x: (np.sort(x), np.argsort(x)))  # fmt: skip
sample("argsort", lambda ns, x: ns.sort(x, 0, True), distinct(3, 2), label="descending")
sample("argsort", lambda ns, x: ns.sort(x, dim=1, stable=True), distinct(2, 3, 2))
sample("argsort", lambda ns, x: ns.sort(x, stable=True), _TIED, smooth=False, label="ties")
sample("argsort", lambda ns, x: x.sort(descending=True, stable=True), _TIED, smooth=False,
       label="ties, descending")  # fmt: skip
sample("argsort", lambda ns, x: ns.sort(x, stable=True), _BROKEN, smooth=False, label="NaN")
sample("argsort", lambda ns, x: x.sort(descending=True, stable=True), _BROKEN, smooth=False,
       label="NaN, descending")  # fmt: skip
sample("argsort", lambda ns, x: x.sort(), distinct(), label="scalar")
sample("argsort", lambda ns, x: x.sort(0), distinct(0, 2), label="empty")
sample("argsort", lambda ns, x: x.sort(stable=True), booleans(5), label="booleans")
sample("argsort", lambda ns, x: ns.argsort(x, 1, descending=True), distinct(2, 4), label="places")
sample("argsort", lambda ns, x: ns.argsort(x), distinct(), label="scalar places")
sample("argsort", lambda ns, x: ns.msort(x), distinct(3, 2), label="msort")

sample("topk_places", lambda ns, x: ns.topk(x, 2), _apart(2, 5))
sample("topk_places", lambda ns, x: x.topk(2, 0, largest=False), _apart(4, 2), label="smallest")
sample("topk_places", lambda ns, x: x.topk(4), _apart(2, 4), label="all")
sample("topk_places", lambda ns, x: x.topk(0), _apart(2, 4), label="none")
sample("topk_places", lambda ns, x: x.topk(1), _apart(), label="scalar")
sample("topk_places", lambda ns, x: x.topk(2), _BROKEN[:1], smooth=False, label="NaN")
sample("topk_places", lambda ns, x: x.topk(2).values, _TIED, smooth=False, label="ties")
sample("topk_places", lambda ns, x: x.topk(2).values, integers(0, 9, 6), label="integers")

sample("kthvalue_place", lambda ns, x: ns.kthvalue(x, 2), _apart(2, 4),
       reference=lambda x: (np.sort(x)[:, 1], np.argsort(x)[:, 1]))  # fmt: skip
sample("kthvalue_place", lambda ns, x: x.kthvalue(3, 0, True), _apart(4, 2), label="kept")
sample("kthvalue_place", lambda ns, x: x.kthvalue(1), _apart(), label="scalar")
sample("kthvalue_place", lambda ns, x: x.kthvalue(4), _BROKEN[:1], smooth=False, label="NaN")

# -- the middle and the commonest ---------------------------------------------------------------

for _row in ("median", "nanmedian"):

    def _call(ns: object, x: Tensor, row: str = _row, **how: object) -> object:
        return getattr(ns, row)(x, **how)

    sample(_row, _call, distinct(3, 3), reference=getattr(np, _row))
    sample(_row, _call, distinct(2, 4), label="even")
    sample(_row, _call, _TIED, smooth=False, label="ties")
    sample(_row, _call, np.array([1.0, nan, 0.5]), smooth=False, label="NaN")
    sample(_row, _call, np.array([nan, nan]), smooth=False, label="nothing but NaN")
    sample(_row, _call, distinct(), label="scalar")
    sample(_row, _call, distinct(0), smooth=False, label="empty")
    sample(_row, _call, integers(0, 9, 5), label="integers")
    _place = f"{_row}_place"
    sample(_place, lambda ns, x, row=_row: getattr(ns, row)(x, 1), distinct(2, 5))
    sample(_place, lambda ns, x, row=_row: getattr(x, row)(-2, keepdim=True), distinct(4, 2))
    sample(_place, lambda ns, x, row=_row: getattr(x, row)(1), _BROKEN, smooth=False, label="NaN")
    sample(_place, lambda ns, x, row=_row: getattr(x, row)(0), distinct(), label="scalar")
    sample(_place, lambda ns, x, row=_row: getattr(x, row)(1), distinct(0, 2), label="empty")

sample("mode_place", lambda ns, x: ns.mode(x), distinct(2, 4), label="all once")
sample("mode_place", lambda ns, x: x.mode(0, True), _TIED.T, smooth=False, label="kept")
sample("mode_place", lambda ns, x: x.mode(), integers(0, 4, 3, 8), label="integers")
sample("mode_place", lambda ns, x: x.mode(), distinct(), label="scalar")

# -- quantiles ----------------------------------------------------------------------------------

_Q = np.array([0.1, 0.55, 0.93])
sample("lerp", lambda ns, x, q: ns.quantile(x, q), distinct(2, 3), _Q, reference=np.quantile,
       dtypes=(), label="quantile")  # fmt: skip
sample("lerp", lambda ns, x, q: ns.quantile(x, q, dim=1), distinct(2, 4), _Q, dtypes=(),
       label="quantile of lanes")  # fmt: skip
sample("lerp", lambda ns, x: ns.quantile(x, 0.3, dim=0, keepdim=True), distinct(3, 2), dtypes=(),
       label="quantile kept")  # fmt: skip
sample("lerp", lambda ns, x: ns.quantile(x, 0.3, interpolation="midpoint"), distinct(5), dtypes=(),
       label="midpoint")  # fmt: skip
sample("lerp", lambda ns, x, q: ns.nanquantile(x, q, dim=-1), _BROKEN, _Q, dtypes=(), smooth=False,
       torch=False, label="nanquantile")  # fmt: skip
sample("lerp", lambda ns, x: ns.nanquantile(x, 0.4), np.array([1.0, nan, 3.0, 2.0]), dtypes=(),
       smooth=False, label="nanquantile")  # fmt: skip
sample("lerp", lambda ns, x: ns.quantile(x, 0.4, dim=0), np.array([1.0, nan, 3.0]), dtypes=(),
       smooth=False, label="quantile with NaN")  # fmt: skip
sample("lerp", lambda ns, x: ns.quantile(x, 0.4), distinct(), dtypes=(), label="quantile of one")
for _interpolation in ("lower", "higher", "nearest"):
    sample("argsort", lambda ns, x, how: ns.quantile(x, 0.4, dim=1, interpolation=how),
           distinct(2, 4), _interpolation, dtypes=(),
           label=f"quantile, {_interpolation}")  # fmt: skip
