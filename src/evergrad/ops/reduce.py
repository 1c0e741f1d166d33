"""Rows that fold dimensions into one value each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind, cast
from evergrad.core.dtypes import as_dtype
from evergrad.core.families import linear
from evergrad.core.op import Op
from evergrad.core.shapes import Shape, TensorType, normalize_dims, reduced_shape, tensor_type
from evergrad.core.tensor import Tensor
from evergrad.ops.movement import expand, reshape, to_front
from evergrad.ops.public import expose


def folded(x: TensorType, *, dims: Shape, keepdim: bool) -> TensorType:
    """The type of a fold that keeps the element type."""
    return tensor_type(reduced_shape(x.shape, dims, keepdim), x.dtype)


def batch_fold(
    op: Op, args: Sequence[Tensor], at: Sequence[Any], *, dims: Shape, keepdim: bool, **rest: Any
) -> Any:
    """Folds leave a leading batch dimension alone."""
    x = to_front(args[0], at[0])
    return bind(op, x, dims=tuple(d + 1 for d in dims), keepdim=keepdim, **rest), 0


def _sum_eval(x: Any, *, dims: Shape, keepdim: bool, **out: Any) -> Any:
    return np.add.reduce(x, axis=dims, keepdims=keepdim, **out)


def _sum_transpose(g: Tensor, x: Tensor, *, dims: Shape, keepdim: bool) -> Tensor:
    shape = x._type.shape
    if not keepdim and dims:
        g = reshape(g, reduced_shape(shape, dims, True))
    return g if g._type.shape == shape else expand(g, shape)


SUM = linear("sum", _sum_eval, folded, _sum_transpose, batch=batch_fold, takes_out=True,
             upcast=True, doc="The sum over dimensions.")  # fmt: skip


@expose(numpy_names=True)
def sum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum over all or the given dimensions; integers are summed in int64."""
    if dtype is not None:
        input = cast(input, as_dtype(dtype))
    elif input.dtype.category < dtypes.FLOATING:
        input = cast(input, dtypes.int64)
    dims = normalize_dims(dim, input.ndim)
    return bind(SUM, input, dims=dims, keepdim=bool(keepdim))  # type: ignore[no-any-return]
