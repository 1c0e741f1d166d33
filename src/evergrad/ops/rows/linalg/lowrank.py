"""Approximate factors of large matrices of low rank, found with random vectors: composites."""

from __future__ import annotations

from typing import Any

from evergrad.core.tensor import Tensor
from evergrad.ops.rows.linalg.base import adjoint
from evergrad.ops.rows.linalg.factor import qr
from evergrad.ops.rows.linalg.spectra import svd
from evergrad.ops.rows.matmul import matmul
from evergrad.ops.surface.public import FUNCTIONS, expose


def _range_basis(A: Tensor, q: int, niter: int) -> Tensor:
    """An orthonormal basis of ``q`` directions that nearly hold the range of ``A``: that of random
    combinations of its columns, made sharper by multiplying with ``A A^H``."""
    random = FUNCTIONS["randn"](A._type.shape[-1], q, dtype=A.dtype)
    basis = qr(matmul(A, random)).Q
    for _ in range(niter):
        basis = qr(matmul(adjoint(A), basis)).Q
        basis = qr(matmul(A, basis)).Q
    return basis  # type: ignore[no-any-return]


@expose(method=False, out=False)
def svd_lowrank(
    A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The ``q`` largest singular values of ``A`` (less ``M``) with their vectors, as ``U``, ``S``
    and ``V``: exact if the rank is at most ``q``, else nearly so.

    Args:
        A: matrices (*, m, n)
        q: how many; default 6
        niter: steps of subspace iteration; default 2
        M: what is subtracted from A

    >>> U, S, V = eg.svd_lowrank(eg.ones(4, 3), q=1)
    >>> U.shape, S.shape, V.shape
    (evergrad.Size([4, 1]), evergrad.Size([1]), evergrad.Size([3, 1]))
    """
    if M is not None:
        A = A - M
    rows, columns = A._type.shape[-2:]
    wide = rows < columns
    tall = adjoint(A) if wide else A
    basis = _range_basis(tall, 6 if q is None else q, 2 if niter is None else niter)
    u, s, right = svd(matmul(adjoint(basis), tall))
    left = matmul(basis, u)
    return (right, s, left) if wide else (left, s, right)


@expose(method=False, out=False)
def pca_lowrank(
    A: Tensor, q: int | None = None, center: bool = True, niter: int = 2
) -> tuple[Tensor, Tensor, Tensor]:
    """The ``q`` principal components of observations in rows, from ``svd_lowrank``.

    Args:
        A: (*, m, n)
        q: how many; default min(6, m, n)
        center: subtract the mean of each column; default ``True``
        niter: steps of subspace iteration; default 2

    >>> U, S, V = eg.pca_lowrank(eg.arange(12.0).view(4, 3), q=2)
    >>> U.shape, S.shape, V.shape
    (evergrad.Size([4, 2]), evergrad.Size([2]), evergrad.Size([3, 2]))
    """
    least = min(A._type.shape[-2:])
    if q is None:
        q = min(6, least)
    elif not 0 <= q <= least:
        raise ValueError(
            f"q(={q}) must be non-negative integer and not greater than min(m, n)={least}"
        )
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    centred: Any = A - A.mean(-2, keepdim=True) if center else A
    return svd_lowrank(centred, q, niter)
