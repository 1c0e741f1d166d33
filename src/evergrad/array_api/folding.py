"""Functions that fold axes: statistics, truth, extremes and their places, running results."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import TYPE_CHECKING

import evergrad as eg
from evergrad.array_api.adapt import Function, enter, fold, standard
from evergrad.core import dtypes
from evergrad.core.bind import bind, cast
from evergrad.core.shapes import normalize_dims
from evergrad.core.tensor import Tensor
from evergrad.ops.rows.reduce.sums import PROD, sum_type
from evergrad.ops.surface.public import FUNCTIONS

if TYPE_CHECKING:
    from evergrad.core.types import DimsLike, DtypeLike

# -- folds --------------------------------------------------------------------------------------


def _fold(name: str, function: Function) -> None:
    def adapted(x: Tensor, /, *, axis: object = None, keepdims: bool = False) -> Tensor:
        return fold(function, x, axis, keepdims)

    enter(name, adapted, function)


for _name, _function in {
    "max": eg.amax, "mean": eg.mean, "min": eg.amin,
}.items():  # fmt: skip
    _fold(_name, _function)


def _truth(name: str, function: Function) -> None:
    def adapted(x: Tensor, /, *, axis: object = None, keepdims: bool = False) -> Tensor:
        return function(cast(x, dtypes.bool_), axis, keepdims)

    enter(name, adapted, function)


for _name in ("all", "any"):
    _truth(_name, FUNCTIONS[_name])


def _fold_as(name: str, function: Function) -> None:
    def adapted(
        x: Tensor, /, *, axis: object = None, dtype: DtypeLike = None, keepdims: bool = False
    ) -> Tensor:
        return fold(function, x, axis, keepdims, dtype=dtype)

    enter(name, adapted, function)


def _prod(
    input: Tensor, dim: DimsLike, keepdim: bool = False, *, dtype: DtypeLike = None
) -> Tensor:
    """The product over axes; integers are multiplied in int64."""
    x = sum_type(input, dtype)
    dims = normalize_dims(dim, x.ndim)
    return bind(PROD, x, dims=dims, keepdim=bool(keepdim))


_fold_as("sum", eg.sum)
_fold_as("prod", _prod)


def _spread(name: str, function: Function) -> None:
    def adapted(
        x: Tensor, /, *, axis: object = None, correction: float = 0.0, keepdims: bool = False
    ) -> Tensor:
        return fold(function, x, axis, keepdims, correction=correction)

    enter(name, adapted, function)


_spread("std", eg.std)
_spread("var", eg.var)


@standard()
def count_nonzero(x: Tensor, /, *, axis: object = None, keepdims: bool = False) -> Tensor:
    """How many elements are not zero."""
    return fold(eg.sum, x != 0, axis, keepdims)


# -- places -------------------------------------------------------------------------------------


def _place(name: str) -> None:
    function = FUNCTIONS[name]

    def adapted(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
        return function(x, axis, keepdims)

    enter(name, adapted, function)


for _name in ("argmax", "argmin"):
    _place(_name)


# -- running results ----------------------------------------------------------------------------


def _running(name: str, function: Function, initial: int) -> None:
    def adapted(
        x: Tensor,
        /,
        *,
        axis: int | None = None,
        dtype: DtypeLike = None,
        include_initial: bool = False,
    ) -> Tensor:
        if axis is None:
            if x.ndim > 1:
                raise ValueError(f"{name} of a {x.ndim}-dimensional array needs an axis")
            axis = 0
        found = function(x, axis, dtype=dtype)
        if not include_initial:
            return found
        shape = list(found.shape)
        shape[axis] = 1
        return eg.cat([eg.full(shape, initial, dtype=found.dtype), found], axis)

    enter(name, adapted, function)


_running("cumulative_sum", eg.cumsum, 0)
_running("cumulative_prod", eg.cumprod, 1)


@standard()
def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Differences of neighbours along an axis, ``n`` times over."""
    return eg.diff(x, n, axis, prepend, append)
