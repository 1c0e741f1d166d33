"""Products that sum: matrix products of every rank, and ``linear``.

Two rows do the work, each one BLAS call where the shapes allow it: ``matmul`` on matrices and
stacks of them, and ``linear``, which multiplies by a transposed weight so that the weight's
gradient comes out in the weight's own layout. Functions made of them (``addmm``, ``outer``,
``tensordot``, ...) are in :mod:`evergrad.ops.composite.products`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from evergrad.core import blas, dtypes
from evergrad.core.autocast import addend_for, as_lowered
from evergrad.core.bind import bind
from evergrad.core.compound import Compound
from evergrad.core.dtypes import dtype
from evergrad.core.eager.fusion import eager_composite
from evergrad.core.families import bilinear, opaque
from evergrad.core.op import Op
from evergrad.core.row_facts import AutocastPolicy, EagerKernel, lowered
from evergrad.core.shapes import Shape, TensorType, broadcast_shapes, tensor_type
from evergrad.core.tensor import Array, Tensor
from evergrad.errors import DTypeError, ShapeError
from evergrad.ops.rows.elementwise.magnitude import conj
from evergrad.ops.rows.movement.views import (
    contiguous,
    expand,
    movedim,
    owned,
    reshape,
    sum_to_type,
    to_front,
    transpose,
)
from evergrad.ops.surface.public import expose, operator

Dims = Sequence[int | None]


# -- what BLAS can take -------------------------------------------------------------------------


def blas_ready(x: Array) -> Array:
    """The array itself if BLAS can read its matrices where they are, else a copy.

    NumPy multiplies anything else (a repeated row, a stepped column) element by element, which
    is far slower than copying first.
    """
    if x.flags.c_contiguous or x.dtype.kind not in "fc" or _one_stride_is_unit(x):
        return x
    return np.ascontiguousarray(x)


def _one_stride_is_unit(x: Array) -> bool:
    (rows, columns), (down, across), size = x.shape[-2:], x.strides[-2:], x.itemsize
    return bool(
        (across == size and down >= columns * size) or (down == size and across >= rows * size)
    )


def as_matrix(x: Tensor) -> Tensor:
    """All dimensions but the last as rows."""
    shape = x._type.shape
    return x if len(shape) == 2 else reshape(x, (math.prod(shape[:-1]), shape[-1]))


# -- matmul -------------------------------------------------------------------------------------


def _check_dtypes(a: TensorType, b: TensorType) -> None:
    if a.dtype is not b.dtype:
        raise DTypeError(
            f"expected m1 and m2 to have the same dtype, but got: {a.dtype.name} != {b.dtype.name}"
        )


def _product_type(shape: Shape, factor: TensorType) -> TensorType:
    """The type of a product; of booleans there is none, unless it has no elements."""
    result = tensor_type(shape, factor.dtype)
    if result.numel and factor.dtype is dtypes.bool_:
        raise NotImplementedError("matrix products are not implemented for 'bool'")
    return result


def _matmul_type(a: TensorType, b: TensorType) -> TensorType:
    _check_dtypes(a, b)
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    (m, k), (found, n) = a.shape[-2:], b.shape[-2:]
    if k != found:
        if not batch:
            raise ShapeError(f"mat1 and mat2 shapes cannot be multiplied ({m}x{k} and {found}x{n})")
        count = math.prod(batch)
        raise ShapeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{count}, {k}] "
            f"but got: [{count}, {found}]."
        )
    return _product_type((*batch, m, n), a)


def _matmul_eval(a: Array, b: Array, **out: object) -> Any:
    return blas.matmul(blas_ready(a), blas_ready(b), **out)


def _matmul_transposes(g: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return _left_cotangent(g, a, conj(b)), _right_cotangent(g, conj(a), b)


def _left_cotangent(g: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """``g @ b^T``; for a single matrix ``a``, one product that sums over the stack as well."""
    if a.ndim == 2 and b.ndim > 2:
        rows, columns = _stack_as_columns(g), _stack_as_columns(b)
        return matmul(rows, transpose(columns, 0, 1))
    return sum_to_type(matmul(g, transpose(b, -2, -1)), a._type)


def _right_cotangent(g: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """``a^T @ g``; for a single matrix ``b``, one product that sums over the stack as well."""
    if b.ndim == 2 and a.ndim > 2:
        return matmul(transpose(as_matrix(a), 0, 1), as_matrix(g))
    return sum_to_type(matmul(transpose(a, -2, -1), g), b._type)


def _stack_as_columns(x: Tensor) -> Tensor:
    """A stack of matrices side by side, as one wide matrix."""
    *stack, rows, columns = x._type.shape
    return reshape(movedim(x, -2, 0), (rows, math.prod(stack) * columns))


def _batch_matmul(op: Op, args: Sequence[Tensor], dims: Dims) -> Any:
    a, b = args
    left, right = dims
    if left is None and a.ndim == 2 and b.ndim == 3:
        # One matrix times many: put them side by side, so that one product does it.
        many = movedim(b, right, 1)
        k, count, n = many._type.shape
        wide = matmul(a, reshape(many, (k, count * n)))
        return reshape(wide, (a._type.shape[0], count, n)), 1
    rank = max(a.ndim - (left is not None), b.ndim - (right is not None))
    a, b = _stack_first(a, left, rank), _stack_first(b, right, rank)
    return matmul(a, b), 0


def _stack_first(x: Tensor, dim: int | None, rank: int) -> Tensor:
    """The batch dimension first, and behind it singletons up to a common rank."""
    if dim is None:
        return x
    x = to_front(x, dim)
    shape = x._type.shape
    missing = rank - (len(shape) - 1)
    return reshape(x, (shape[0],) + (1,) * missing + shape[1:]) if missing else x


# With so many multiplications kernels are faster than casting 16-bit factors and the product.
_NARROW_WORK = 1 << 15


def _matmul_work(a: TensorType, b: TensorType) -> int:
    return a.numel * b.shape[-1]


def _linear_work(x: TensorType, weight: TensorType) -> int:
    return x.numel * weight.shape[0]


MATMUL = bilinear("matmul", _matmul_eval, _matmul_type, _matmul_transposes, batch=_batch_matmul,
                  takes_out=True,
                  emit=lowered("kernels.gemm", strided=True), autocast=AutocastPolicy.LOWER,
                  eager=EagerKernel(1 << 23, _matmul_work, least_narrow=_NARROW_WORK),
                  shape_generic=True,
                  doc="Products of matrices, stack by stack.")  # fmt: skip


@expose()
def matmul(input: Any, other: Any) -> Tensor:
    """The matrix product; vectors count as a row on the left and as a column on the right."""
    for name, value in (("input", input), ("other", other)):
        if not isinstance(value, Tensor):
            raise TypeError(
                f"matmul(): argument '{name}' must be Tensor, not {type(value).__name__}"
            )
    a, b = len(input._type.shape), len(other._type.shape)
    if a == 2 and b == 2:
        return bind(MATMUL, input, other)  # type: ignore[no-any-return]
    if not a or not b:
        raise ShapeError(
            f"both arguments to matmul need to be at least 1D, but they are {a}D and {b}D"
        )
    if a == 1 or b == 1:
        return _vector_product(input, other)
    if a > 2 and b == 2 and not isinstance(input, Compound):
        product = bind(MATMUL, as_matrix(input), other)
        return owned(reshape(product, (*input._type.shape[:-1], other._type.shape[-1])))
    return bind(MATMUL, input, other)  # type: ignore[no-any-return]


def _vector_product(input: Tensor, other: Tensor) -> Tensor:
    left, right = input._type.shape, other._type.shape
    _check_vector_lengths(left, right)
    a = reshape(input, (1, *left)) if len(left) == 1 else input
    b = reshape(other, (*right, 1)) if len(right) == 1 else other
    product = matmul(a, b)
    shape = product._type.shape
    if len(left) == 1:
        shape = (*shape[:-2], shape[-1])
    return owned(reshape(product, shape[:-1] if len(right) == 1 else shape))


def _check_vector_lengths(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    if len(right) > 1 or left[-1] == right[0]:
        return
    if len(left) == 1:
        raise ShapeError(
            f"inconsistent tensor size, expected tensor [{left[0]}] and src [{right[0]}] to have "
            f"the same number of elements, but got {left[0]} and {right[0]} elements respectively"
        )
    rows = math.prod(left[:-1])
    raise ShapeError(
        f"size mismatch, got input ({rows}), mat ({rows}x{left[-1]}), vec ({right[0]})"
    )


operator("__matmul__", matmul, reflected="__rmatmul__")


# -- a product and an addend, rounded once ------------------------------------------------------


def is_narrow(kind: dtype) -> bool:
    """Whether an element type is a 16-bit float, whose products are summed in float32."""
    return kind.compute is not kind.np


def _add_product_type(
    addend: TensorType, a: TensorType, b: TensorType, *, beta: float, alpha: float
) -> TensorType:
    return _matmul_type(a, b)


def _add_product_eval(addend: Array, a: Array, b: Array, *, beta: float, alpha: float) -> Any:
    product = _matmul_eval(a, b)
    if alpha != 1:
        product = product * alpha
    return product + (addend if beta == 1 else addend * beta)


def _add_product_work(addend: TensorType, a: TensorType, b: TensorType) -> int:
    return _matmul_work(a, b)


def _add_product_vjp(
    g: Tensor, y: Tensor, addend: Tensor, a: Tensor, b: Tensor, *, beta: float, alpha: float
) -> tuple[Tensor, ...]:
    for_addend = g if beta == 1 else g * beta
    for_product = g if alpha == 1 else g * alpha
    return sum_to_type(for_addend, addend._type), *_matmul_transposes(for_product, a, b)


def _batch_add_product(op: Op, args: Sequence[Tensor], dims: Dims, **factors: float) -> Any:
    rank = max(x.ndim - (d is not None) for x, d in zip(args, dims, strict=True))
    stacks = [_stack_first(x, d, rank) for x, d in zip(args, dims, strict=True)]
    return bind(op, *stacks, **factors), 0


ADD_PRODUCT = opaque("add_product", _add_product_eval, _add_product_type, _add_product_vjp,
                     batch=_batch_add_product,
                     emit=lowered("passes.decompose"), autocast=AutocastPolicy.LOWER,
                     eager=EagerKernel(1 << 23, _add_product_work, least_narrow=_NARROW_WORK),
                     doc="beta * addend + alpha * (a @ b), rounded once.")  # fmt: skip


def add_product(
    addend: Tensor, a: Tensor, b: Tensor, beta: float = 1.0, alpha: float = 1.0
) -> Tensor:
    """``beta * addend + alpha * (a @ b)`` of 16-bit floats, rounded once: added to a product that
    is rounded already, the error would be twice as large."""
    return bind(ADD_PRODUCT, addend, a, b, beta=float(beta), alpha=float(alpha))  # type: ignore[no-any-return]


# -- linear -------------------------------------------------------------------------------------


def _linear_type(x: TensorType, weight: TensorType) -> TensorType:
    _check_dtypes(x, weight)
    outputs, inputs = weight.shape
    if x.shape[-1] != inputs:
        rows = math.prod(x.shape[:-1])
        raise ShapeError(
            f"mat1 and mat2 shapes cannot be multiplied ({rows}x{x.shape[-1]} and "
            f"{inputs}x{outputs})"
        )
    return _product_type((*x.shape[:-1], outputs), x)


def _linear_eval(x: Array, weight: Array, out: Any = None) -> Any:
    if out is None and x.ndim == 2:
        return blas.matmul(blas_ready(x), blas_ready(weight).T)
    shape = (*x.shape[:-1], weight.shape[0])
    rows = blas_ready(x.reshape(math.prod(x.shape[:-1]), x.shape[-1]))
    columns = blas_ready(weight).T
    if out is None:
        return blas.matmul(rows, columns).reshape(shape)
    blas.matmul(rows, columns, out=out.reshape(len(rows), shape[-1]))
    return out


def _linear_transposes(g: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    rows = as_matrix(g)
    for_x = matmul(rows, conj(weight))
    for_weight = matmul(transpose(rows, 0, 1), as_matrix(conj(x)))
    return reshape(for_x, x._type.shape), for_weight


def _batch_linear(op: Op, args: Sequence[Tensor], dims: Dims) -> Any:
    x, weight = args
    if dims[1] is None:
        return bind(op, to_front(x, dims[0]), weight), 0  # type: ignore[arg-type]
    weights = to_front(weight, dims[1])
    count, outputs, inputs = weights._type.shape
    if dims[0] is None:
        # Many weights for one input are one weight with more outputs.
        result = bind(op, x, reshape(weights, (count * outputs, inputs)))
        return reshape(result, (*x._type.shape[:-1], count, outputs)), x.ndim - 1
    x = to_front(x, dims[0])
    rows = reshape(x, (count, math.prod(x._type.shape[1:-1]), inputs))
    result = matmul(rows, transpose(weights, 1, 2))
    return reshape(result, (*x._type.shape[:-1], outputs)), 0


LINEAR = bilinear("linear", _linear_eval, _linear_type, _linear_transposes, batch=_batch_linear,
                  takes_out=True,
                  emit=lowered("kernels.gemm", strided=True), autocast=AutocastPolicy.LOWER,
                  eager=EagerKernel(1 << 23, _linear_work, least_narrow=_NARROW_WORK),
                  shape_generic=True,
                  doc="x @ weight^T, for rows of any shape.")  # fmt: skip


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input @ weight^T + bias``, with a weight of [outputs, inputs]."""
    if not isinstance(input, Tensor):
        raise TypeError(f"linear(): argument 'input' must be Tensor, not {type(input).__name__}")
    if not input.ndim or not weight.ndim:
        raise ShapeError(
            "both arguments to linear need to be at least 1D, but they are "
            f"{input.ndim}D and {weight.ndim}D"
        )
    if weight.ndim == 1:
        result = matmul(input, weight)
    elif weight.ndim == 2:
        if bias is not None and is_narrow(as_lowered(input).dtype):
            return _narrow_linear(as_lowered(input), weight, bias)
        if bias is not None and bias._type.same(tensor_type(weight._type.shape[:1], input.dtype)):
            rows = input if input.ndim == 2 else contiguous(input)
            return _linear_and_bias(rows, weight, bias)  # type: ignore[no-any-return]
        result = bind(LINEAR, input, weight)
    else:
        raise ShapeError(f"linear expects a weight of at most 2 dimensions, not {weight.ndim}")
    if bias is None:
        return result
    return result + checked_addend(bias, result._type)


def _narrow_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Of 16-bit floats: the bias is added before the sums are rounded."""
    shape = (*x._type.shape[:-1], weight._type.shape[0])
    addend = checked_addend(bias, tensor_type(shape, x.dtype))
    rows = reshape(x, (math.prod(shape[:-1]), x._type.shape[-1]))
    if addend.ndim > 1:
        addend = reshape(expand(addend, shape), (rows._type.shape[0], shape[-1]))
    return owned(reshape(add_product(addend, rows, transpose(weight, 0, 1)), shape))


def _multiply_adds(x: Tensor, weight: Tensor, bias: Tensor) -> int:
    return x._type.numel * weight._type.shape[0]


@eager_composite(least=1 << 15, size=_multiply_adds)
def _linear_and_bias(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    result = bind(LINEAR, x, weight)
    return result + checked_addend(bias, result._type)  # type: ignore[no-any-return]


def checked_addend(addend: Tensor, product: TensorType) -> Tensor:
    """What is added to a product must have its element type and expand to its shape."""
    if addend.dtype is not product.dtype:
        addend = addend_for(product.dtype, addend)
    if addend.dtype is not product.dtype:
        raise DTypeError(
            f"self and mat2 must have the same dtype, but got {addend.dtype.name} and "
            f"{product.dtype.name}"
        )
    shape, own = product.shape, addend._type.shape
    lead = len(shape) - len(own)
    if lead < 0:
        raise ShapeError(f"a tensor of {list(own)} cannot be added to a product of {list(shape)}")
    for i, extent in enumerate(own):
        if extent not in (1, shape[lead + i]):
            raise ShapeError(
                f"The expanded size of the tensor ({shape[lead + i]}) must match the existing size "
                f"({extent}) at non-singleton dimension {lead + i}.  Target sizes: {list(shape)}.  "
                f"Tensor sizes: {list(own)}"
            )
    return addend
