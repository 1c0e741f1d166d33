"""Functions made of matrix products: vectors, sums with a product, contractions over dimensions."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Sequence
from typing import Any

from evergrad.core import dtypes
from evergrad.core.autocast import autocast_policy
from evergrad.core.bind import cast
from evergrad.core.compound import Compound
from evergrad.core.dtypes import promote_types
from evergrad.core.prepared import prepared
from evergrad.core.row_facts import AutocastPolicy
from evergrad.core.shapes import Shape, normalize_dim
from evergrad.core.state import STATE, using
from evergrad.core.tensor import Tensor
from evergrad.errors import DTypeError, ShapeError
from evergrad.ops.composite.einsum import einsum
from evergrad.ops.rows.elementwise.magnitude import conj
from evergrad.ops.rows.matmul import MATMUL, add_product, checked_addend, is_narrow, matmul
from evergrad.ops.rows.movement.joining import stack
from evergrad.ops.rows.movement.slices import select
from evergrad.ops.rows.movement.views import expand, owned, permute, reshape
from evergrad.ops.rows.reduce.sums import sum as total
from evergrad.ops.surface.public import expose

# -- vectors and matrices -----------------------------------------------------------------------


@expose()
def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices."""
    if input.ndim != 2:
        raise ShapeError("self must be a matrix")
    if mat2.ndim != 2:
        raise ShapeError("mat2 must be a matrix")
    return matmul(input, mat2)


@expose()
def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """The products of two equally long stacks of matrices."""
    _check_stacks(input, mat2)
    return matmul(input, mat2)


def _check_stacks(batch1: Tensor, batch2: Tensor) -> None:
    if batch1.ndim != 3:
        raise ShapeError("batch1 must be a 3D tensor")
    if batch2.ndim != 3:
        raise ShapeError("batch2 must be a 3D tensor")
    count, _, inner = batch1._type.shape
    found = batch2._type.shape[:2]
    if found != (count, inner):
        raise ShapeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{count}, {inner}] "
            f"but got: {list(found)}."
        )


@expose()
@autocast_policy(AutocastPolicy.OFF)
@prepared
def mv(input: Tensor, vec: Tensor) -> Tensor:
    """The product of a matrix and a vector."""
    if input.ndim != 2 or vec.ndim != 1:
        raise ShapeError(f"vector + matrix @ vector expected, got 1, {input.ndim}, {vec.ndim}")
    return matmul(input, vec)


@expose()
@autocast_policy(AutocastPolicy.OFF)
@prepared
def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """The sum of the products of two vectors' elements."""
    if input.ndim != 1 or tensor.ndim != 1:
        raise ShapeError(f"1D tensors expected, but got {input.ndim}D and {tensor.ndim}D tensors")
    if input.dtype is not tensor.dtype:
        raise DTypeError(
            "dot : expected both vectors to have same dtype, but found "
            f"{input.dtype.name} and {tensor.dtype.name}"
        )
    return matmul(input, tensor)


@expose()
@autocast_policy(AutocastPolicy.OFF)
def vdot(input: Tensor, other: Tensor) -> Tensor:
    """``dot`` with the first vector conjugated."""
    return dot(conj(input), other)


@expose()
@prepared
def inner(input: Tensor, other: Tensor) -> Tensor:
    """The products of all vectors along the last dimensions; plain products with a number."""
    if not input.ndim or not other.ndim:
        return input * other
    if input.dtype is not other.dtype:
        raise DTypeError("both inputs should have same dtype")
    if input._type.shape[-1] != other._type.shape[-1]:
        raise ShapeError(
            "inner() the last dimension must match on both input tensors but got shapes "
            f"{list(input._type.shape)} and {list(other._type.shape)}"
        )
    return tensordot(input, other, ([-1], [-1]))


@expose("ger")
@prepared
def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """Every element of one vector times every element of another."""
    _check_vectors("outer", self=input, vec2=vec2)
    return reshape(input, (input._type.numel, 1)) * vec2


def _check_vectors(name: str, **vectors: Tensor) -> None:
    for argument, vector in vectors.items():
        if vector.ndim != 1:
            raise ShapeError(f"{name}: Expected 1-D argument {argument}, but got {vector.ndim}-D")


@expose(method=False)
def chain_matmul(*matrices: Tensor) -> Tensor:
    """The product of several matrices, in the order that costs least."""
    warnings.warn(
        "chain_matmul is deprecated; linalg.multi_dot takes the matrices as a list",
        UserWarning,
        stacklevel=2,
    )
    for i, (a, b) in enumerate(itertools.pairwise(matrices)):
        if a._type.shape[-1] != b._type.shape[0]:
            raise ShapeError(
                f"multi_dot(): tensors {i} and {i + 1} with shapes {list(a._type.shape)} and "
                f"{list(b._type.shape)} cannot be multiplied"
            )
    operands: list[object] = []
    for i, matrix in enumerate(matrices):
        operands += [matrix, [i, i + 1]]
    return einsum(*operands, [0, len(matrices)])


# -- a tensor plus a product --------------------------------------------------------------------


def _plus(input: Tensor, a: Tensor, b: Tensor, beta: Any, alpha: Any) -> Tensor:
    """``beta * input + alpha * (a @ b)``; with beta 0 the input is not read at all."""
    is_dense = not isinstance(a, Compound) and not isinstance(b, Compound)
    if is_dense and is_narrow(a.dtype) and beta != 0 and b.ndim > 1:
        product = MATMUL.type(a._type, b._type)
        return add_product(checked_addend(input, product), a, b, beta, alpha)
    found = matmul(a, b)
    input = checked_addend(input, found._type)
    if found.dtype.category < dtypes.FLOATING:
        beta, alpha = int(beta), int(alpha)
    scaled = found if alpha == 1 else found * alpha
    if beta == 0:
        return scaled
    return (input if beta == 1 else input * beta) + scaled


@expose(inplace=True)
@autocast_policy(AutocastPolicy.LOWER)
@prepared
def addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: object = 1, alpha: object = 1
) -> Tensor:
    """``beta * input + alpha * (mat1 @ mat2)``"""
    for name, matrix in (("mat1", mat1), ("mat2", mat2)):
        if matrix.ndim != 2:
            raise ShapeError(f"{name} must be a matrix, got {matrix.ndim}-D tensor")
    return _plus(input, mat1, mat2, beta, alpha)


@expose(inplace=True)
@autocast_policy(AutocastPolicy.OFF)
@prepared
def addmv(
    input: Tensor, mat: Tensor, vec: Tensor, *, beta: object = 1, alpha: object = 1
) -> Tensor:
    """``beta * input + alpha * (mat @ vec)``"""
    if mat.ndim != 2 or vec.ndim != 1 or input.ndim > 1:
        raise ShapeError(
            f"vector + matrix @ vector expected, got {input.ndim}, {mat.ndim}, {vec.ndim}"
        )
    column = reshape(vec, (vec._type.numel, 1))
    addend = reshape(input, (*input._type.shape, 1))
    return owned(reshape(_plus(addend, mat, column, beta, alpha), (mat._type.shape[0],)))


@expose(inplace=True)
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """``beta * input + alpha * outer(vec1, vec2)``"""
    _check_vectors("addr", vec1=vec1, vec2=vec2)
    product = outer(vec1, vec2)
    expanded = expand(input, product._type.shape)
    if product.dtype is dtypes.bool_ and input.dtype is dtypes.bool_:
        alpha, beta = _as_truth("alpha", alpha), _as_truth("beta", beta)
    scaled = product if alpha == 1 else product * alpha
    if beta == 0:
        return cast(scaled, promote_types(input.dtype, scaled.dtype))
    return (expanded if beta == 1 else expanded * beta) + scaled


def _as_truth(name: str, scale: object) -> bool:
    """The scale of a sum of booleans."""
    if isinstance(scale, float):
        raise RuntimeError(
            f"For integral input tensors, argument {name} must not be a floating point number."
        )
    return bool(scale)


@expose(inplace=True)
@autocast_policy(AutocastPolicy.LOWER)
def addbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: object = 1, alpha: object = 1
) -> Tensor:
    """``beta * input + alpha * sum_i batch1[i] @ batch2[i]``, as one product."""
    _check_stacks(batch1, batch2)
    (count, rows, depth), columns = batch1._type.shape, batch2._type.shape[2]
    a = reshape(permute(batch1, (1, 0, 2)), (rows, count * depth))
    return _plus(input, a, reshape(batch2, (count * depth, columns)), beta, alpha)


@expose(inplace=True)
@autocast_policy(AutocastPolicy.LOWER)
@prepared
def baddbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: object = 1, alpha: object = 1
) -> Tensor:
    """``beta * input + alpha * bmm(batch1, batch2)``"""
    _check_stacks(batch1, batch2)
    return _plus(input, batch1, batch2, beta, alpha)


# -- contractions -------------------------------------------------------------------------------


@expose(method=False)
@prepared
def tensordot(a: Tensor, b: Tensor, dims: object = 2) -> Tensor:
    """The sum over pairs of dimensions: ``dims`` many last with first, or as two lists."""
    dims_a, dims_b = _contracted_dims(a, b, dims)
    shape_a, shape_b = a._type.shape, b._type.shape
    for i, j in zip(dims_a, dims_b, strict=True):
        if shape_a[i] != shape_b[j] and 1 not in (shape_a[i], shape_b[j]):
            raise ShapeError(
                f"contracted dimensions need to match, but first has size {shape_a[i]} in dim {i} "
                f"and second has size {shape_b[j]} in dim {j}"
            )
    a = _without_broadcast(a, dims_a, tuple(shape_b[j] for j in dims_b))
    b = _without_broadcast(b, dims_b, tuple(shape_a[i] for i in dims_a))
    free_a = tuple(i for i in range(a.ndim) if i not in dims_a)
    free_b = tuple(j for j in range(b.ndim) if j not in dims_b)
    kept_a = tuple(shape_a[i] for i in free_a)
    kept_b = tuple(shape_b[j] for j in free_b)
    summed = math.prod(a._type.shape[i] for i in dims_a)
    left = reshape(permute(a, free_a + dims_a), (math.prod(kept_a), summed))
    right = reshape(permute(b, dims_b + free_b), (summed, math.prod(kept_b)))
    if math.prod(kept_a + kept_b) != 1 or STATE.get().autocast is None:
        return reshape(matmul(left, right), kept_a + kept_b)
    with using(autocast=None):  # PyTorch's scalar product has no policy
        return reshape(matmul(left, right), kept_a + kept_b)


def _contracted_dims(a: Tensor, b: Tensor, dims: Any) -> tuple[Shape, Shape]:
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a.ndim, b.ndim):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
        return tuple(range(a.ndim - dims, a.ndim)), tuple(range(dims))
    first, second = ([d] if isinstance(d, int) else list(d) for d in dims)
    if len(first) != len(second):
        raise RuntimeError("both dimension lists should have same length")
    return (
        tuple(normalize_dim(d, a.ndim) for d in first),
        tuple(normalize_dim(d, b.ndim) for d in second),
    )


def _without_broadcast(x: Tensor, dims: Shape, others: Shape) -> Tensor:
    """Sum a contracted dimension that the other tensor only has as a singleton."""
    extra = tuple(d for d, n in zip(dims, others, strict=True) if n == 1 != x._type.shape[d])
    return total(x, extra, keepdim=True) if extra else x


@expose()
def kron(input: Tensor, other: Tensor) -> Tensor:
    """The Kronecker product: a copy of ``other`` scaled by each element of ``input``."""
    rank = max(input.ndim, other.ndim)
    a = (1,) * (rank - input.ndim) + input._type.shape
    b = (1,) * (rank - other.ndim) + other._type.shape
    outer_blocks = tuple(n for extent in a for n in (extent, 1))
    inner_blocks = tuple(n for extent in b for n in (1, extent))
    product = reshape(input, outer_blocks) * reshape(other, inner_blocks)
    return owned(reshape(product, tuple(n * m for n, m in zip(a, b, strict=True))))


@expose(numpy_names=True)
@prepared
def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """The cross product of vectors of length 3."""
    if dim is None:
        warnings.warn(
            "Using cross without specifying the dim arg is deprecated.\nPlease either pass the dim "
            "explicitly or simply use linalg.cross.",
            UserWarning,
            stacklevel=2,
        )
        dim = _first_of_length_3(input._type.shape)
    return cross_product(input, other, dim)


def _first_of_length_3(shape: Sequence[int]) -> int:
    if 3 not in shape:
        raise RuntimeError("no dimension of size 3 in input")
    return shape.index(3)


def cross_product(input: Tensor, other: Tensor, dim: int = -1) -> Tensor:
    """The cross product along ``dim``; the other dimensions broadcast."""
    if input.ndim != other.ndim:
        raise ShapeError("linalg.cross: inputs must have the same number of dimensions.")
    dim = normalize_dim(dim, input.ndim)
    extents = input._type.shape[dim], other._type.shape[dim]
    if extents != (3, 3):
        raise ShapeError(
            f"linalg.cross: inputs dimension {dim} must have length 3. Got {extents[0]} and "
            f"{extents[1]}"
        )
    a, b = ([select(x, dim, i) for i in range(3)] for x in (input, other))
    parts = [a[i - 2] * b[i - 1] - a[i - 1] * b[i - 2] for i in range(3)]
    return stack(parts, dim)


@expose(method=False, out=False)
@autocast_policy(AutocastPolicy.OFF)
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input1^T weight[k] input2 + bias[k]`` for every output k."""
    if input1._type.shape[:-1] != input2._type.shape[:-1]:
        raise ShapeError(
            "bilinear(): input batch dimensions do not match: got "
            f"{list(input1._type.shape)} and {list(input2._type.shape)}"
        )
    if (input1._type.shape[-1], input2._type.shape[-1]) != weight._type.shape[1:]:
        raise ShapeError(
            "bilinear(): input sizes do not match weight size: got "
            f"{input1._type.shape[-1]} and {input2._type.shape[-1]} for a weight of "
            f"{list(weight._type.shape)}"
        )
    result = einsum("...i,kij,...j->...k", input1, weight, input2)
    return result if bias is None else result + bias
