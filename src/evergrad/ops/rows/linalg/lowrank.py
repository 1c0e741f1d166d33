"""Approximate factors of large matrices of low rank, found with random vectors: composites."""

from __future__ import annotations

from evergrad.core.autocast import under_autocast
from evergrad.core.tensor import Tensor
from evergrad.ops.rows.linalg import factor, solve, spectra
from evergrad.ops.rows.linalg.base import adjoint
from evergrad.ops.rows.matmul import matmul
from evergrad.ops.surface.public import FUNCTIONS, expose

# Under autocast they are the public functions, in float32.
cholesky, qr = under_autocast(factor.cholesky), under_autocast(factor.qr)
solve_triangular = under_autocast(solve.solve_triangular)
eigh, svd = under_autocast(spectra.eigh), under_autocast(spectra.svd)


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
    centred: Tensor = A - A.mean(-2, keepdim=True) if center else A
    return svd_lowrank(centred, q, niter)


@expose(method=False, out=False)
def lobpcg(
    A: Tensor, k: int | None = None, B: Tensor | None = None, X: Tensor | None = None,
    n: int | None = None, iK: Tensor | None = None, niter: int | None = None,
    tol: float | None = None, largest: bool | None = None, method: str | None = None,
    tracker: object = None, ortho_iparams: object = None, ortho_fparams: object = None,
    ortho_bparams: object = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The ``k`` largest or smallest eigenvalues of symmetric positive definite matrices with their
    vectors, of ``A x = e B x``.

    They are exact: all of them are computed, by a factorization of the dense matrix. Guesses,
    preconditioners and the parameters of PyTorch's iteration are accepted and change nothing.

    Args:
        A: matrices (*, m, m)
        k: how many; default 1, or the columns of X
        B: matrices (*, m, m) of the generalized problem
        X: (*, m, n), guesses, whose number is that of the eigenvalues if ``k`` is left out
        largest: the largest ones; default ``True``

    >>> e, v = eg.lobpcg(eg.diag(eg.tensor([1.0, 5.0, 3.0, 2.0])), k=1)
    >>> e, v.abs().argmax().item()
    (tensor([5.]), 1)
    """
    A, B = (None if t is None else t.to_dense() if t.is_sparse else t for t in (A, B))  # type: ignore[assignment]
    rows = A._type.shape[-1]
    count = k if k is not None else 1 if X is None else X._type.shape[-1]
    wanted = count if n is None else n
    if method not in (None, "basic", "ortho"):
        raise ValueError(f"method must be 'basic' or 'ortho', not {method!r}")
    if rows < 3 * wanted:
        raise ValueError(
            f"LPBPCG algorithm is not applicable when the number of A rows (={rows}) is smaller "
            f"than 3 x the number of requested eigenpairs (={wanted})"
        )
    A = (A + adjoint(A)) / 2
    if B is None:
        values, vectors = eigh(A)
    else:
        lower = cholesky(B)
        left = solve_triangular(lower, A, upper=False)
        values, vectors = eigh(solve_triangular(lower, adjoint(left), upper=False))
        vectors = solve_triangular(adjoint(lower), vectors, upper=True)
    if largest is None or largest:
        values, vectors = values.flip(-1), vectors.flip(-1)
    return values[..., :count], vectors[..., :count]
