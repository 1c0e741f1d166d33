"""Samples of folds: sums, means, products, any and all, variances, norms, extremes."""

from collections.abc import Callable
from typing import Any

import numpy as np

from evergrad.testing.samples import (
    Array,
    booleans,
    complex_normal,
    distinct,
    integers,
    normal,
    positive,
    sample,
)

__all__: list[str] = []  # samples are registered, nothing is exported

inf, nan = np.inf, np.nan


def _folds(
    row: str, reference: Callable[..., object], make: Callable[..., Array], *given: object
) -> None:
    """The ways to name dimensions that all folds share."""

    def call(**how: Any) -> Callable[..., Any]:
        return lambda ns, x: getattr(ns, row)(x, *given, **how)

    def same(axis: object = None, keepdims: bool = False) -> Callable[..., object]:
        return lambda x: reference(x, axis=axis, keepdims=keepdims)

    sample(row, call(dim=(0, 1, 2)), make(2, 3, 2), reference=same(), label="all")
    sample(row, call(dim=1), make(2, 3), reference=same(1), label="one")
    sample(row, call(dim=(0, -1)), make(2, 3, 2), reference=same((0, -1)), label="two")
    sample(row, call(dim=-1, keepdim=True), make(2, 3), reference=same(-1, True), label="kept")
    sample(row, call(dim=1), make(0, 3), reference=same(1), label="empty")


def _integers(*shape: int) -> Array:
    return integers(0, 2, *shape)


def _logsumexp(x: Array, **how: Any) -> object:
    return np.log(np.sum(np.exp(x), **how))


def _norm(x: Array, **how: Any) -> object:
    return np.sqrt(np.sum(x * x, **how))


# -- sums and products --------------------------------------------------------------------------

_folds("sum", np.sum, normal)
_folds("mean", np.mean, normal)
for _row in ("sum", "mean", "prod"):
    sample(_row, lambda ns, x, row=_row: getattr(ns, row)(x), complex_normal(2, 3), label="complex")
    sample(_row, lambda ns, x, row=_row: getattr(x, row)(), normal(2, 2), label="method")
    sample(_row, lambda ns, x, row=_row: getattr(x, row)(dim=0), normal(0, 2), label="of none",
           smooth=False)  # fmt: skip
sample("sum", lambda ns, x: x.sum(1), integers(0, 9, 2, 3), label="integers")
sample("sum", lambda ns, x: x.sum(()), normal(2, 3), label="no dims are all")
sample("sum", lambda ns, x: x.sum(dtype=ns.float64), booleans(5), label="booleans")
sample("sum", lambda ns, x: ns.nansum(x, 0), np.array([[1.0, nan], [2.0, 3.0]]), smooth=False,
       reference=lambda x: np.nansum(x, 0), label="without NaN")  # fmt: skip
sample("sum", lambda ns, x: ns.nanmean(x, 0), np.array([[1.0, nan], [2.0, 3.0]]), smooth=False,
       reference=lambda x: np.nanmean(x, 0), label="mean without NaN")  # fmt: skip
sample("sum", lambda ns, x: ns.count_nonzero(x, 0), integers(0, 2, 3, 2), label="count")
sample("mean", lambda ns, x: x.mean(0, dtype=ns.float64), integers(0, 9, 2, 3), label="integers")

sample("prod", lambda ns, x: ns.prod(x), normal(2, 3), reference=np.prod, label="all")
sample("prod", lambda ns, x: ns.prod(x, 0), normal(2, 3), reference=lambda x: np.prod(x, 0))
sample("prod", lambda ns, x: x.prod(-1, keepdim=True), normal(2, 3), label="kept")
sample("prod", lambda ns, x: x.prod(1), np.array([[0.0, 2.0, 3.0], [0.0, 0.0, 3.0]]), label="zeros")
sample("prod", lambda ns, x: x.prod(), np.zeros((2, 2)), label="all zero")
sample("prod", lambda ns, x: x.prod(), normal(), reference=np.prod, label="scalar")
sample("prod", lambda ns, x: x.prod(0), integers(-3, 4, 2, 3), label="integers")

_folds("any", np.any, _integers)
_folds("all", np.all, _integers)
for _row in ("any", "all"):
    sample(_row, lambda ns, x, row=_row: getattr(ns, row)(x), np.array([nan, 0.0]), label="floats")
    sample(_row, lambda ns, x, row=_row: getattr(ns, row)(x, 0), np.array([0, 3], np.uint8))
    sample(_row, lambda ns, x, row=_row: getattr(ns, row)(x), booleans(0), label="of none")

_folds("logsumexp", _logsumexp, normal)
sample("logsumexp", lambda ns, x: ns.logsumexp(x, 0), np.array([1000.0, 1001.0]), dtypes=(),
       label="large")  # fmt: skip
sample("logsumexp", lambda ns, x: ns.logsumexp(x, 1), np.array([[-inf, 1.0], [inf, 1.0]]),
       smooth=False, label="infinite")  # fmt: skip
sample("logsumexp", lambda ns, x: ns.logsumexp(x, 0), np.array([-inf, -inf]), torch=False,
       reference=lambda x: np.array(-inf), smooth=False, label="all of it -inf")  # fmt: skip
sample("logsumexp", lambda ns, x: ns.logsumexp(x, 0), complex_normal(3), label="complex")

# -- variances and norms ------------------------------------------------------------------------

_folds("var", lambda x, **how: np.var(x, ddof=1, **how), normal)
_folds("std", lambda x, **how: np.std(x, ddof=1, **how), normal)
for _row in ("var", "std"):
    sample(_row, lambda ns, x, row=_row: getattr(ns, row)(x), normal(2, 3), label="everything")
    sample(_row, lambda ns, x, row=_row: getattr(x, row)(0, False), normal(3, 2), label="biased")
    sample(_row, lambda ns, x, row=_row: getattr(x, row)(False), normal(3, 2), label="all, biased")
    sample(_row, lambda ns, x, row=_row: getattr(ns, row)(x, 0, correction=1.5), normal(3, 2),
           label="corrected")  # fmt: skip
    sample(_row, lambda ns, x, row=_row: getattr(ns, row + "_mean")(x, 1), normal(2, 3),
           label="and mean")  # fmt: skip
    sample(
        _row, lambda ns, x, row=_row: getattr(ns, row)(x), normal(), smooth=False, label="of one"
    )
sample("var", lambda ns, x: ns.var(x, 1), complex_normal(2, 3), label="complex")
sample("std", lambda ns, x: ns.std(x, 1), np.ones((2, 3)), smooth=False, label="of equals")

_folds("norm", _norm, normal, 2)
sample("norm", lambda ns, x: x.norm(), normal(2, 3), label="everything")
sample("norm", lambda ns, x: x.norm(dim=1), np.array([[0.0, 0.0], [3.0, 4.0]]), smooth=False,
       label="at zero")  # fmt: skip
sample("norm", lambda ns, z: z.norm(dim=0), complex_normal(2, 3), label="complex")
sample("norm", lambda ns, a, b: ns.dist(a, b), normal(3), normal(2, 3), label="distance")
for _p in (0.5, 1.5, 3, -1):
    sample("power_norm", lambda ns, x, p: ns.norm(x, p, dim=1), normal(2, 3), _p,
           reference=lambda x, p: np.sum(np.abs(x) ** p, 1) ** (1 / p),
           label=f"p={_p}")  # fmt: skip
sample("power_norm", lambda ns, x: x.norm(3), np.array([[0.0, 2.0], [1.0, 3.0]]), label="a zero")
sample("power_norm", lambda ns, x: x.norm(1.5, 1, True), np.array([[0.0, 2.0], [0.0, 0.0]]),
       smooth=False, label="at zero")  # fmt: skip
sample("power_norm", lambda ns, z: z.norm(3, 0), complex_normal(2, 3), label="complex")
sample("sum", lambda ns, x: x.norm(1, dim=0), normal(2, 3), label="norm 1")
sample("sum", lambda ns, x: x.norm(0), np.array([0.0, 2.0, -1.0]), smooth=False, label="norm 0")

# -- extremes -----------------------------------------------------------------------------------

_folds("amax", np.max, distinct)
_folds("amin", np.min, distinct)
_TIED = np.array([[1.0, 2.0, 2.0], [2.0, 0.0, 0.0]])
for _row, _short in (("amax", "max"), ("amin", "min")):
    sample(_row, lambda ns, x, row=_short: getattr(ns, row)(x), distinct(2, 3), label="of all")
    sample(_row, lambda ns, x, row=_short: getattr(x, row)(), _TIED, smooth=False, label="ties")
    sample(
        _row, lambda ns, x, row=_row: getattr(x, row)(1), _TIED, smooth=False, label="tied lanes"
    )
    sample(_row, lambda ns, x, row=_short: getattr(x, row)(), np.array([1.0, nan, 2.0]),
           smooth=False, label="NaN")  # fmt: skip
    sample(_row, lambda ns, x: ns.aminmax(x, dim=1), distinct(2, 3), label="both")
    sample(_row, lambda ns, x, row=_row: getattr(x, row)(), booleans(5), label="booleans")
    sample(_row, lambda ns, x, p=inf if _row == "amax" else -inf: x.norm(p, dim=0), positive(2, 3),
           label="norm")  # fmt: skip

for _row, _short in (("argmax", "max"), ("argmin", "min")):
    sample(_row, lambda ns, x, row=_row: getattr(ns, row)(x), distinct(2, 3),
           reference=getattr(np, _row), label="of all")  # fmt: skip
    sample(_row, lambda ns, x, row=_row: getattr(ns, row)(x, 1), distinct(2, 3),
           reference=lambda x, row=_row: getattr(np, row)(x, 1))  # fmt: skip
    sample(_row, lambda ns, x, row=_row: getattr(x, row)(-2, keepdim=True), distinct(2, 3, 2))
    sample(
        _row, lambda ns, x, row=_row: getattr(x, row)(keepdim=True), distinct(2, 3), label="kept"
    )
    sample(_row, lambda ns, x, row=_row: getattr(x, row)(0), distinct(), label="scalar")
    sample(_row, lambda ns, x, row=_row: getattr(x, row)(0), np.array([1.0, nan, nan]), label="NaN")
    sample(_row, lambda ns, x, row=_short: getattr(ns, row)(x, 1), distinct(2, 3), label="values")
    sample(_row, lambda ns, x, row=_short: getattr(x, row)(0, keepdim=True), distinct(2, 3),
           label="values kept")  # fmt: skip
    sample(_row, lambda ns, x, row=_short: getattr(x, row)(1), _TIED, smooth=False, label="ties")
    sample(_row, lambda ns, x, row=_short: getattr(x, row)(-1), positive(), label="scalar values")
    sample(_row, lambda ns, x, row=_short: getattr(x, row)(1), distinct(0, 3), label="empty")

# -- nothing to fold ----------------------------------------------------------------------------

for _row in ("sum", "mean", "prod", "any", "all", "logsumexp", "norm", "amax", "amin"):
    sample(_row, lambda ns, x, row=_row: getattr(x, row)(dim=-1), normal(), label="scalar")
    sample(_row, lambda ns, x, row=_row: getattr(x, row)(dim=0, keepdim=True), normal(),
           label="scalar kept")  # fmt: skip
