"""Linear algebra: the four functions of the main namespace, and the extension ``linalg``."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import evergrad as eg
from evergrad.array_api.adapt import LINALG, NAMESPACE, binary, meeting, standard, unary
from evergrad.core.tensor import Tensor
from evergrad.ops.rows.linalg.base import LINALG as _ENGINE

if TYPE_CHECKING:
    from evergrad.core.types import DtypeLike

# -- in both ------------------------------------------------------------------------------------

binary("matmul")


@standard()
def matrix_transpose(x: Tensor, /) -> Tensor:
    """The last two axes exchanged."""
    return x.mT


@standard()
def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    """The sum over pairs of axes: ``axes`` many last with first, or as two lists."""
    first, second = meeting(x1, x2)
    return eg.tensordot(first, second, axes)


@standard()
def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The sum of the products of two vectors' elements, the first conjugated."""
    if x1.shape[axis] != x2.shape[axis]:
        raise ValueError(
            f"vecdot of vectors of {x1.shape[axis]} and of {x2.shape[axis]} elements: "
            "the axis that is summed does not broadcast"
        )
    first, second = meeting(x1, x2)
    products = eg.conj(first) * second
    return eg.sum(products, axis, dtype=products.dtype)


for _name in ("matmul", "matrix_transpose", "tensordot", "vecdot"):
    LINALG[_name] = NAMESPACE[_name]

# -- the extension ------------------------------------------------------------------------------

unary("det eigh eigvalsh inv slogdet svdvals", _ENGINE, LINALG)
binary("outer", into=LINALG)


@standard(into=LINALG)
def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """The triangular factor of a positive-definite matrix."""
    return _ENGINE["cholesky"](x, upper=upper)


@standard(into=LINALG)
def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The cross product of vectors of three elements."""
    x1, x2 = meeting(x1, x2)
    rank = max(x1.ndim, x2.ndim)
    wide = (x.reshape((1,) * (rank - x.ndim) + tuple(x.shape)) for x in (x1, x2))
    return _ENGINE["cross"](*wide, dim=axis)


@standard(into=LINALG)
def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """A diagonal of the last two axes."""
    return _ENGINE["diagonal"](x, offset=offset)


@standard(into=LINALG)
def trace(x: Tensor, /, *, offset: int = 0, dtype: DtypeLike = None) -> Tensor:
    """The sum of a diagonal of the last two axes."""
    return eg.sum(_ENGINE["diagonal"](x, offset=offset), -1, dtype=dtype)


@standard(into=LINALG)
def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: object = "fro") -> Tensor:
    """The norm of the matrices in the last two axes."""
    return _ENGINE["matrix_norm"](x, ord, keepdim=keepdims)


@standard(into=LINALG)
def vector_norm(
    x: Tensor, /, *, axis: object = None, keepdims: bool = False, ord: float = 2
) -> Tensor:
    """The norm of the vectors in one or several axes."""
    return _ENGINE["vector_norm"](x, ord, axis, keepdims)


@standard(into=LINALG)
def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """The product of ``n`` equal matrices."""
    return _ENGINE["matrix_power"](x, n)


@standard(into=LINALG)
def matrix_rank(x: Tensor, /, *, rtol: object = None) -> Tensor:
    """How many singular values exceed ``rtol`` times the largest."""
    return _ENGINE["matrix_rank"](x, rtol=rtol)


@standard(into=LINALG)
def pinv(x: Tensor, /, *, rtol: object = None) -> Tensor:
    """The pseudo-inverse, without singular values below ``rtol`` times the largest."""
    return _ENGINE["pinv"](x, rtol=rtol)


@standard(into=LINALG)
def qr(x: Tensor, /, *, mode: str = "reduced") -> Any:
    """An orthonormal and a triangular factor."""
    return _ENGINE["qr"](x, mode)


@standard(into=LINALG)
def svd(x: Tensor, /, *, full_matrices: bool = True) -> Any:
    """The singular value decomposition."""
    return _ENGINE["svd"](x, full_matrices)


@standard(into=LINALG)
def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The solution of a linear equation; only a 1-d ``x2`` is a vector, all else are matrices."""
    x1, x2 = meeting(x1, x2)
    if x2.ndim == 1:
        return _ENGINE["solve"](x1, x2[:, None])[..., 0]
    return _ENGINE["solve"](x1, x2[(None,) * (x1.ndim - x2.ndim)])


globals().update(LINALG)

__all__ = sorted(LINALG)
