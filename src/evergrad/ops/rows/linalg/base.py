"""What the linear-algebra modules share: the namespace, checks in PyTorch's words, small helpers.

Knows no decomposition. Matrices are the last two dimensions everywhere, all others are a stack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind
from evergrad.core.row_facts import numpy_evaluates
from evergrad.core.tensor import Tensor
from evergrad.core.types import Array
from evergrad.errors import LinAlgError
from evergrad.ops.rows.elementwise.magnitude import conj
from evergrad.ops.rows.movement.slices import narrow
from evergrad.ops.rows.movement.strided import DIAGONAL
from evergrad.ops.rows.movement.views import transpose

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction

# What ``evergrad.linalg`` offers.
LINALG: dict[str, AnyFunction] = {}


BY_LAPACK = numpy_evaluates("LAPACK computes it")


# -- checks -------------------------------------------------------------------------------------


def check_floating(name: str, x: Tensor, *, low_precision: bool = False) -> None:
    """Refuse integers, and (unless allowed) the 16-bit floats LAPACK has no routines for.

    As in PyTorch these are noticed only where there is something to compute.
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}(): expected a Tensor, not {type(x).__name__}")
    if x.dtype.category < dtypes.FLOATING:
        raise RuntimeError(
            f"{name}: Expected a floating point or complex tensor as input. Got {x.dtype.name}"
        )
    if x.dtype.itemsize == 2 and x._type.numel and not low_precision:
        raise NotImplementedError(f"{name}: Low precision dtypes not supported. Got {x.dtype.name}")


def check_rank(name: str, x: Tensor, argument: str = "A") -> None:
    if x.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor {argument} must have at least 2 dimensions.")


def check_matrix(name: str, x: Tensor, argument: str = "A") -> None:
    """A floating-point matrix, or a stack of them."""
    check_floating(name, x)
    check_rank(name, x, argument)


def check_square_shape(name: str, x: Tensor, argument: str = "A") -> None:
    check_rank(name, x, argument)
    rows, columns = x._type.shape[-2:]
    if rows != columns:
        raise RuntimeError(
            f"{name}: {argument} must be batches of square matrices, but they are {rows} by "
            f"{columns} matrices"
        )


def check_square(name: str, x: Tensor, argument: str = "A", *, low_precision: bool = False) -> None:
    """A floating-point square matrix, or a stack of them."""
    check_floating(name, x, low_precision=low_precision)
    check_square_shape(name, x, argument)


def check_same_dtype(name: str, a: Tensor, b: Tensor) -> None:
    if a.dtype is not b.dtype:
        raise RuntimeError(
            f"{name}: Expected A and B to have the same dtype, but found A of type "
            f"{a.dtype.name} and B of type {b.dtype.name} instead"
        )


def check_equation(name: str, A: Tensor, B: Tensor, left: bool) -> None:
    """The matrices of ``A X = B``, or without ``left`` of ``X A = B``, fit."""
    if A._type.shape[-1] != B._type.shape[-2 if left else -1]:
        sizes = ["x".join(map(str, x._type.shape[-2:])) for x in (A, B)]
        raise RuntimeError(
            f"{name}: Incompatible shapes of A and B for the equation "
            f"{'AX = B' if left else 'XA = B'} ({sizes[0]} and {sizes[1]})"
        )


# -- matrices that a decomposition refuses ------------------------------------------------------


def complain(name: str, info: Array, text: str) -> LinAlgError:
    """The error for the first failure in ``info``, whose number fills the gap in ``text``."""
    failed = int(np.flatnonzero(info)[0])
    where_failed = f"(Batch element {failed}): " if info.ndim else ""
    return LinAlgError(f"{name}: {where_failed}{text.format(info.flat[failed])}")


def not_converged(name: str) -> LinAlgError:
    return LinAlgError(
        f"{name}: The algorithm failed to converge because the input matrix contained non-finite "
        "values."
    )


# -- small matrix helpers, in ops ---------------------------------------------------------------


def adjoint(x: Tensor) -> Tensor:
    """The conjugate transpose."""
    return conj(transpose(x, -2, -1))


def diagonal_of(x: Tensor) -> Tensor:
    """The main diagonals."""
    return bind(  # type: ignore[no-any-return]
        DIAGONAL, x, offset=0, dim1=x.ndim - 2, dim2=x.ndim - 1
    )


def split_at(x: Tensor, dim: int, count: int) -> tuple[Tensor, Tensor]:
    """The first ``count`` elements of a dimension, and the others."""
    return narrow(x, dim, 0, count), narrow(x, dim, count, x._type.shape[dim] - count)
