"""Products that sum: matrix products of every rank, and ``linear``.

Two rows do the work, each one BLAS call where the shapes allow it: ``matmul`` on matrices and
stacks of them, and ``linear``, which multiplies by a transposed weight so that the weight's
gradient comes out in the weight's own layout. Functions made of them (``addmm``, ``outer``,
``tensordot``, ...) are in :mod:`evergrad.ops.composite.products`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad import config
from evergrad.core import blas, dtypes
from evergrad.core.autocast import addend_for, as_lowered
from evergrad.core.bind import bind, bind_and_prepare, bind_binary
from evergrad.core.compound import Compound, is_jagged
from evergrad.core.dtypes import dtype
from evergrad.core.eager.fusion import eager_composite, on_clear
from evergrad.core.errstate import QUIET, numpy_errors
from evergrad.core.families import bilinear, opaque
from evergrad.core.op import Op, prepared_calls
from evergrad.core.recording import record
from evergrad.core.row_facts import AutocastPolicy, EagerKernel, lowered
from evergrad.core.shapes import Shape, TensorType, broadcast_shapes, tensor_type
from evergrad.core.state import STATE, State
from evergrad.core.tensor import Array, Tensor, current_node, new_result
from evergrad.errors import DTypeError, ShapeError
from evergrad.ops.rows.elementwise.basic import ADD
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

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction

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
            f". Convert the first with .to(evergrad.{b.dtype.name}), or the second."
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
            raise ShapeError(
                f"mat1 and mat2 shapes cannot be multiplied ({m}x{k} and {found}x{n}): the first "
                f"has {k} columns, the second {found} rows, and these must be equal"
            )
        count = math.prod(batch)
        raise ShapeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{count}, {k}] "
            f"but got: [{count}, {found}]. The factors are {list(a.shape)} and {list(b.shape)}; "
            "the last size of the first must be the last but one of the second."
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


def _batch_matmul(op: Op, args: Sequence[Tensor], dims: Dims) -> tuple[Tensor, int]:
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


# With fewer multiplications a product with a vector takes one thread, and no kernel.
_VECTOR_WORK = 1 << 18


def _matmul_operator(ranks: Sequence[int]) -> str:
    return {(1, 1): "dot", (2, 1): "mv", (1, 2): "mm", (2, 2): "mm"}.get(
        (ranks[0], ranks[1]), "bmm"
    )


def _matmul_work(a: TensorType, b: TensorType) -> int:
    return a.numel * b.shape[-1]


def _linear_work(x: TensorType, weight: TensorType) -> int:
    return x.numel * weight.shape[0]


MATMUL = bilinear("matmul", _matmul_eval, _matmul_type, _matmul_transposes, batch=_batch_matmul,
                  takes_out=True,
                  emit=lowered("kernels.gemm", strided=True), autocast=AutocastPolicy.LOWER,
                  eager=EagerKernel(1 << 23, _matmul_work, least_narrow=_NARROW_WORK),
                  shape_generic=True, aten=_matmul_operator,
                  doc="Products of matrices, stack by stack.")  # fmt: skip


def _is_small(work: int, out: TensorType) -> bool:
    """Whether a product takes one thread, and a result that is not from the pool."""
    return (
        work < blas.PARALLEL_MIN_WORK and out.nbytes < config.POOL_MIN_BYTES and not config.POISON
    )


def _is_float(factor: TensorType) -> bool:
    return factor.dtype in (dtypes.float32, dtypes.float64)


def _matmul_evaluator(plain: Callable[..., object], a: TensorType, b: TensorType) -> AnyFunction:
    """Multiplies small contiguous matrices without looking at their layout any further."""
    if not _is_float(a) or not _is_small(_matmul_work(a, b), _matmul_type(a, b)):
        return plain
    small_matmul = blas.small_matmul

    def run(x: Array, y: Any) -> object:
        if x.flags.c_contiguous and y.flags.c_contiguous:
            return small_matmul(x, y)
        return plain(x, y)

    return run


MATMUL.prepare_for = _matmul_evaluator


@expose()
def matmul(input: object, other: object) -> Tensor:
    """The matrix product; vectors count as a row on the left and as a column on the right."""
    if not (isinstance(input, Tensor) and isinstance(other, Tensor)):
        name, value = ("other", other) if isinstance(input, Tensor) else ("input", input)
        raise TypeError(f"matmul(): argument '{name}' must be Tensor, not {type(value).__name__}")
    a, b = len(input._type.shape), len(other._type.shape)
    if a == 2 and b == 2:
        return bind_binary(MATMUL, input, other)  # type: ignore[no-any-return]
    if not a or not b:
        raise ShapeError(
            f"both arguments to matmul need to be at least 1D, but they are {a}D and {b}D"
        )
    if a == 1 or b == 1:
        return _vector_product(input, other)
    if a > 2 and b == 2 and not isinstance(input, Compound):
        if _is_apart(input, other) and _is_rows_product(input._type, other._type):
            return bind_binary(VECTOR_PRODUCT, input, other)  # type: ignore[no-any-return]
        product = bind(MATMUL, as_matrix(input), other)
        return owned(reshape(product, (*input._type.shape[:-1], other._type.shape[-1])))
    return bind(MATMUL, input, other)  # type: ignore[no-any-return]


# -- products with a vector ---------------------------------------------------------------------

# In eager mode a product of float matrices and vectors is one node, and one of a stack of rows and
# a matrix one evaluation where nothing is recorded. Traces see the reshaping and the product that
# it consists of.


def _lifted(left: Shape, right: Shape) -> tuple[Shape, Shape, Shape]:
    """The shapes of the factors as matrices, and of the product."""
    a = (1, *left) if len(left) == 1 else (math.prod(left[:-1]), left[-1])
    b = (*right, 1) if len(right) == 1 else right
    return a, b, (*left[:-1], *right[1:])


def _vector_type(a: TensorType, b: TensorType) -> TensorType:
    return tensor_type(_lifted(a.shape, b.shape)[2], a.dtype)


def _vector_vjp(g: Tensor, y: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    left, right, _ = _lifted(a._type.shape, b._type.shape)
    rows = reshape(g, (left[0], right[1]))
    for_a, for_b = _matmul_transposes(rows, reshape(a, left), reshape(b, right))
    return reshape(for_a, a._type.shape), reshape(for_b, b._type.shape)


def _vector_evaluator(plain: object, a: TensorType, b: TensorType) -> Any:
    left, right, shape = _lifted(a.shape, b.shape)
    factors = tensor_type(left, a.dtype), tensor_type(right, b.dtype)
    multiply = _matmul_evaluator(_matmul_eval, *factors)

    def run(x: Array, y: Any) -> Any:
        return multiply(x.reshape(left), y.reshape(right)).reshape(shape)

    return run


VECTOR_PRODUCT = Op(
    "vector_product", family="opaque", in_table=False, type=_vector_type, eval=np.matmul,
    vjp=_vector_vjp, jvp=None, batch=None, shape_generic=True, aten=_matmul_operator,
    autocast=AutocastPolicy.LOWER, emit=lowered("traced as a matrix product"),
)  # fmt: skip
VECTOR_PRODUCT.prepare_for = _vector_evaluator


@on_clear
def _clear_vector_products() -> None:
    forgotten, VECTOR_PRODUCT.specializations = VECTOR_PRODUCT.specializations, {}
    for specialization in forgotten.values():
        specialization.vjp_programs = {}


def _is_one_product(a: TensorType, b: TensorType) -> bool:
    """Whether the eager product with a vector is evaluated by one call."""
    return (
        a.__class__ is TensorType
        and b.__class__ is TensorType
        and a.dtype is b.dtype
        and _is_float(a)
        and len(a.shape) + len(b.shape) <= 3
        and a.shape[-1] == b.shape[0]
        and a.numel * b.numel < _VECTOR_WORK
    )


def _is_apart(*factors: Tensor) -> bool:
    """Whether a product of these is recorded and traced nowhere."""
    state = STATE.get()
    if state.intercepted:
        return False
    if state.grad:
        for factor in factors:
            if factor._node is not None or current_node(factor) is not None:
                return False
    return True


def _is_rows_product(a: TensorType, b: TensorType) -> bool:
    """Whether a small product of rows in several dimensions is evaluated by one call."""
    return (
        a.__class__ is TensorType
        and b.__class__ is TensorType
        and a.dtype is b.dtype
        and _is_float(a)
        and a.shape[-1] == b.shape[0]
        and a.numel * b.shape[1] < _VECTOR_WORK
    )


def _vector_product(input: Tensor, other: Tensor) -> Tensor:
    if not STATE.get().intercepted and _is_one_product(input._type, other._type):
        return bind_binary(VECTOR_PRODUCT, input, other)  # type: ignore[no-any-return]
    left, right = input._type.shape, other._type.shape
    _check_vector_lengths(left, right)
    a = reshape(input, (1, *left)) if len(left) == 1 else input
    b = reshape(other, (*right, 1)) if len(right) == 1 else other
    product = matmul(a, b) if isinstance(a, Compound) else bind_binary(MATMUL, a, b)
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


def _add_product_eval(addend: Array, a: Array, b: Array, *, beta: float, alpha: float) -> object:
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


def _batch_add_product(
    op: Op, args: Sequence[Tensor], dims: Dims, **factors: float
) -> tuple[Tensor, int]:
    rank = max(x.ndim - (d is not None) for x, d in zip(args, dims, strict=True))
    stacks = [_stack_first(x, d, rank) for x, d in zip(args, dims, strict=True)]
    return bind(op, *stacks, **factors), 0


ADD_PRODUCT = opaque("add_product", _add_product_eval, _add_product_type, _add_product_vjp,
                     batch=_batch_add_product,
                     emit=lowered("passes.decompose"), autocast=AutocastPolicy.LOWER,
                     eager=EagerKernel(1 << 23, _add_product_work, least_narrow=_NARROW_WORK),
                     aten=lambda ranks: "addmm" if max(ranks) == 2 else "baddbmm",
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
            f"{inputs}x{outputs}): the input {list(x.shape)} has {x.shape[-1]} features in its "
            f"last dimension, the layer takes {inputs}"
        )
    return _product_type((*x.shape[:-1], outputs), x)


def _linear_eval(x: Array, weight: Array, out: Any = None) -> object:
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


def _batch_linear(op: Op, args: Sequence[Tensor], dims: Dims) -> tuple[Tensor, int]:
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
                  shape_generic=True, aten="mm",
                  doc="x @ weight^T, for rows of any shape.")  # fmt: skip


def _linear_evaluator(
    plain: Callable[..., object], x: TensorType, weight: TensorType
) -> AnyFunction:
    """Multiplies a small contiguous matrix without looking at its layout any further."""
    out = _linear_type(x, weight)
    if len(x.shape) != 2 or not _is_float(x) or not _is_small(_linear_work(x, weight), out):
        return plain
    small_matmul = blas.small_matmul

    def run(rows: Array, matrix: Any) -> object:
        if rows.flags.c_contiguous and matrix.flags.c_contiguous:
            return small_matmul(rows, matrix.T)
        return plain(rows, matrix)

    return run


LINEAR.prepare_for = _linear_evaluator

# From so many multiplications on a product and its bias are one kernel.
_LEAST_FUSED = 1 << 15
# By types: the specializations of a product and of its sum with a bias where both are small.
_SMALL = prepared_calls()
_SMALL_SUMS = prepared_calls()


def _small_linear(
    state: State,
    key: tuple[TensorType, TensorType, TensorType],
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
) -> Tensor:
    """The product and the sum as two nodes, in one piece of memory: neither derivative reads the
    product."""
    product, total = _SMALL[key], _SMALL_SUMS[key]
    token = numpy_errors.set(QUIET)
    try:
        value = product.run(x._value, weight._value)
        np.add(value, bias._value, out=value)
    finally:
        numpy_errors.reset(token)
    out = new_result(value, total.out_types[0], state.inference)
    if state.grad:
        record(state, product, (x, weight), (out,))
        record(state, total, (out, bias), (out,))
    return out


def _is_small_linear(x: Tensor, weight: Tensor, bias: Tensor) -> bool:
    """Whether further calls of these types may take the way of :func:`_small_linear`."""
    if STATE.get().intercepted or config.EAGER_KERNEL_ELEMENTS is not None:
        return False
    work = _linear_work(x._type, weight._type)
    return _is_float(x._type) and 0 < work < _LEAST_FUSED and bias._type.dtype is weight._type.dtype


def _bind_small_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    key = x._type, weight._type, bias._type
    result = bind_and_prepare(_SMALL, key, LINEAR, x, weight)
    total = bind_and_prepare(_SMALL_SUMS, key, ADD, result, bias)
    if key not in _SMALL:
        _SMALL_SUMS.pop(key, None)
    return total  # type: ignore[no-any-return]


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input @ weight^T + bias``, with a weight of [outputs, inputs]."""
    if not isinstance(input, Tensor):
        raise TypeError(f"linear(): argument 'input' must be Tensor, not {type(input).__name__}")
    if bias is not None:
        key = input._type, weight._type, bias._type
        if key in _SMALL_SUMS:
            state = STATE.get()
            is_usual = config.EAGER_KERNEL_ELEMENTS is None and not state.intercepted
            if is_usual and input._value.flags.c_contiguous:
                return _small_linear(state, key, input, weight, bias)
    rank, of_weight = len(input._type.shape), len(weight._type.shape)
    if not rank or not of_weight:
        raise ShapeError(
            f"both arguments to linear need to be at least 1D, but they are {rank}D and "
            f"{of_weight}D"
        )
    if of_weight == 1:
        result = matmul(input, weight)
    elif of_weight == 2:
        if bias is not None:
            lowered = as_lowered(input)
            if is_narrow(lowered._type.dtype) and not isinstance(weight, Compound):
                if not isinstance(lowered, Compound):
                    return _narrow_linear(lowered, weight, bias)
                if is_jagged(lowered) and isinstance(lowered._type.shape[-1], int):
                    return lowered.mapped("linear", lambda x: _narrow_linear(x, weight, bias))
            added = bias._type
            if added.shape == weight._type.shape[:1] and added.dtype is input._type.dtype:
                rows = input if rank == 2 else contiguous(input)
                if rows is input and _is_small_linear(input, weight, bias):
                    return _bind_small_linear(input, weight, bias)
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


@eager_composite(least=_LEAST_FUSED, size=_multiply_adds, aten="addmm")
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
