"""Samples of what is carried along a dimension."""

import numpy as np

from evergrad.core.tensor import Tensor
from evergrad.ops.rows.reduce.scan import recur
from evergrad.testing.samples import (
    Array,
    booleans,
    complex_normal,
    distinct,
    integers,
    normal,
    sample,
)

__all__: list[str] = []  # samples are registered, nothing is exported

inf, nan = np.inf, np.nan

# -- linear recurrences -------------------------------------------------------------------------


def _recurrence(a: Array, b: Array) -> Array:
    y = b.copy()
    for i in range(1, len(b)):
        y[i] += a[i] * y[i - 1]
    return y


for _extent in (1, 2, 5, 8):
    sample("recur", lambda ns, a, b: recur(a, b, 0), normal(_extent, 2), normal(_extent, 2, seed=1),
           torch=False, reference=_recurrence)  # fmt: skip
sample("recur", lambda ns, a, b: recur(a, b, 1, reverse=True), normal(2, 3), normal(2, 3, seed=1),
       torch=False, reference=lambda a, b: _recurrence(a.T[::-1], b.T[::-1])[::-1].T,
       label="from the end")  # fmt: skip
sample("recur", lambda ns, a, b: recur(a, b, 0), complex_normal(4), complex_normal(4, seed=2),
       torch=False, reference=_recurrence, label="complex")  # fmt: skip
sample("recur", lambda ns, a, b: recur(a, b, 0), np.zeros(4), normal(4), torch=False,
       reference=_recurrence, label="zeros")  # fmt: skip

# -- sums and products --------------------------------------------------------------------------

for _row, _function in (("cumsum", np.cumsum), ("cumprod", np.cumprod)):

    def _call(ns: object, x: Tensor, dim: int, row: str = _row) -> object:
        return getattr(ns, row)(x, dim)

    sample(_row, _call, normal(2, 3), 0, reference=_function)
    sample(_row, _call, normal(2, 3, 2), -2, reference=_function)
    sample(_row, _call, complex_normal(2, 3), 1, reference=_function, label="complex")
    sample(_row, _call, normal(0, 3), 0, reference=_function)
    sample(_row, _call, normal(0, 3), 1, reference=_function)
    sample(_row, _call, normal(), 0, label="scalar")
    sample(_row, _call, integers(-3, 4, 4), 0, label="integers")
    sample(_row, _call, booleans(4), 0, label="booleans")
    sample(_row, lambda ns, x, row=_row: getattr(x.clone(), row + "_")(1), normal(2, 3),
           label="in place")  # fmt: skip
sample("cumsum", lambda ns, x: ns.cumsum(x, 0, dtype=ns.float64), integers(0, 9, 4), label="type")
sample("cumprod", lambda ns, x: ns.cumprod(x, 1),
       np.array([[0.0, 2.0, 3.0, 4.0], [1.0, 0.0, 3.0, 0.0], [0.0, 0.0, 2.0, 1.0]]), dtypes=(),
       label="zeros")  # fmt: skip
sample("cumsum", lambda ns, y: ns.cumulative_trapezoid(y, dx=0.5), normal(2, 4), dtypes=(),
       label="trapezoids")  # fmt: skip
sample("cumsum", lambda ns, y, x: ns.cumulative_trapezoid(y, x, dim=0), normal(3, 2), distinct(3),
       dtypes=(), label="trapezoids of given widths")  # fmt: skip
sample("sum", lambda ns, y, x: ns.trapezoid(y, x), normal(2, 4), normal(4), dtypes=(),
       label="trapezoids")  # fmt: skip
sample("sum", lambda ns, y: ns.trapz(y, dx=2, dim=0), normal(3, 2), dtypes=(), label="dx")

for _extent in (1, 2, 5):
    sample("logcumsumexp", lambda ns, x: ns.logcumsumexp(x, 0), normal(_extent, 2),
           reference=lambda x: np.log(np.cumsum(np.exp(x), 0)))  # fmt: skip
sample("logcumsumexp", lambda ns, x: ns.logcumsumexp(x, -1), normal(2, 3))
sample("logcumsumexp", lambda ns, x: ns.logcumsumexp(x, 0), normal(), label="scalar")
sample("logcumsumexp", lambda ns, x: ns.logcumsumexp(x, 0), normal(0, 2), label="empty")
sample("logcumsumexp", lambda ns, x: ns.logcumsumexp(x, 0),
       np.array([-500.0, 300.0, 310.0, -20.0, 311.0]), dtypes=(), label="far apart")  # fmt: skip
sample("logcumsumexp", lambda ns, x: ns.logcumsumexp(x, 0), np.array([-inf, -inf, 1.0, 2.0]),
       torch=False, reference=np.logaddexp.accumulate, smooth=False,
       label="nothing so far")  # fmt: skip

# -- running extremes and differences -----------------------------------------------------------

for _name in ("cummax", "cummin"):
    _row = f"{_name}_places"
    sample(_row, lambda ns, x, name=_name: getattr(ns, name)(x, 1), distinct(2, 4))
    sample(_row, lambda ns, x, name=_name: getattr(ns, name)(x, -2), distinct(3, 2))
    sample(_row, lambda ns, x, name=_name: getattr(x, name)(0), distinct(), label="scalar")
    sample(_row, lambda ns, x, name=_name: getattr(x, name)(0), distinct(0, 2), label="empty")
    sample(_row, lambda ns, x, name=_name: getattr(x, name)(0), np.array([1.0, nan, 2.0, nan, 1.0]),
           smooth=False, label="NaN")  # fmt: skip
    sample(_row, lambda ns, x, name=_name: getattr(x, name)(0), np.array([1.0, 1.0, 2.0, 2.0, 1.0]),
           smooth=False, label="ties")  # fmt: skip
    sample(_row, lambda ns, x, name=_name: getattr(x, name)(0), booleans(5), label="booleans")

sample("sub", lambda ns, x: ns.diff(x), normal(2, 4), reference=np.diff, label="diff")
sample("sub", lambda ns, x: x.diff(2, 0), normal(4, 2), dtypes=(), label="second diff")
sample("sub", lambda ns, x, a, b: ns.diff(x, prepend=a, append=b), normal(2, 3), normal(2, 1),
       normal(2, 2), label="extended diff")  # fmt: skip
sample("bitwise_xor", lambda ns, x: ns.diff(x), booleans(2, 4), label="diff")
