"""Samples of linear algebra: systems, determinants, factorizations, spectra, ranks.

Matrices are well conditioned and have distinct eigen- and singular values. Where a result is only
defined up to signs or phases, the call continues with something that does not depend on them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.ops.rows.linalg.det import cofactor
from evergrad.testing.samples import Array, complex_normal, normal, sample

if TYPE_CHECKING:
    from evergrad.core.tensor import Tensor

__all__: list[str] = []  # samples are registered, nothing is exported

# LAPACK has no routines for 16-bit floats.
_DTYPES = ("float32",)


def _enter(row: str, call: Callable[..., object], *inputs: Array, **options: Any) -> None:
    sample(row, call, *inputs, dtypes=_DTYPES, **options)


def _with_weighty_diagonal(x: Array) -> Array:
    rows, columns = x.shape[-2:]
    weights = np.zeros((rows, columns))
    np.fill_diagonal(weights, np.linspace(1.5, 3.0, min(rows, columns)))
    return np.asarray(0.3 * x + weights)


def regular(*shape: int, seed: int = 0) -> Array:
    """Real matrices that are far from singular."""
    return _with_weighty_diagonal(normal(*shape, seed=seed))


def complex_regular(*shape: int, seed: int = 0) -> Array:
    """Complex matrices that are far from singular."""
    return _with_weighty_diagonal(complex_normal(*shape, seed=seed))


_KINDS = ((regular, normal, "real"), (complex_regular, complex_normal, "complex"))


def _hermitian(x: Tensor) -> Tensor:
    return x + x.mH


def _positive(ns: Any, x: Tensor) -> object:
    return x @ x.mH + ns.eye(x.shape[-1], dtype=x.dtype)


# -- systems ------------------------------------------------------------------------------------

for matrices, vectors, kind in _KINDS:
    _enter("solve", lambda ns, a, b: ns.linalg.solve(a, b), matrices(3, 3), vectors(3, 2),
           reference=np.linalg.solve, label=kind)  # fmt: skip
    _enter("solve", lambda ns, a, b: ns.linalg.solve(a, b, left=False), matrices(2, 2, 2),
           vectors(3, 2), label=f"{kind} right")  # fmt: skip
    _enter("solve_triangular", lambda ns, a, b: ns.linalg.solve_triangular(a, b, upper=True),
           matrices(3, 3), vectors(3, 2), label=f"{kind} upper",
           reference=lambda a, b: np.linalg.solve(np.triu(a), b))  # fmt: skip
    _enter("solve_triangular", lambda ns, a, b: ns.linalg.solve_triangular(
               a, b, upper=False, left=False, unitriangular=True),
           matrices(2, 2, 2), vectors(3, 2), label=f"{kind} unit right")  # fmt: skip
    _enter("inv", lambda ns, a: ns.linalg.inv(a), matrices(2, 3, 3), reference=np.linalg.inv,
           label=kind)  # fmt: skip
    _enter("det", lambda ns, a: ns.linalg.det(a), matrices(2, 3, 3), reference=np.linalg.det,
           label=kind)  # fmt: skip
    _enter("slogdet", lambda ns, a: ns.linalg.slogdet(a), matrices(2, 3, 3),
           reference=np.linalg.slogdet, label=kind)  # fmt: skip
    _enter("slogdet", lambda ns, a: ns.logdet(a), matrices(2, 2), label=f"{kind} logdet")
    _enter("cofactor", lambda ns, a: cofactor(a), matrices(2, 3, 3), torch=False, label=kind,
           reference=lambda a: np.linalg.det(a)[..., None, None]
           * np.swapaxes(np.linalg.inv(a), -2, -1))  # fmt: skip

_enter("solve", lambda ns, a, b: ns.linalg.solve(a, b), regular(3, 3), normal(3), label="vector",
       reference=np.linalg.solve)  # fmt: skip
_enter("solve", lambda ns, a, b: ns.linalg.solve(a, b), regular(2, 2, 2), normal(2, 2),
       label="vectors")  # fmt: skip
_enter("solve", lambda ns, a, b: ns.linalg.solve(a, b), regular(2, 1, 2, 2), normal(3, 2, 1),
       label="broadcast")  # fmt: skip
_enter("solve", lambda ns, a, b: ns.linalg.solve(a, b), normal(0, 2, 2), normal(0, 2, 1),
       label="empty")  # fmt: skip
_enter("solve", lambda ns, a, b: ns.linalg.tensorsolve(a, b, dims=(0,)), regular(4, 4).reshape(
           2, 4, 2), normal(4), label="tensorsolve")  # fmt: skip
_enter("solve_triangular", lambda ns, a, b: ns.linalg.solve_triangular(a, b, upper=False),
       regular(2, 2, 2), normal(3, 1, 2, 2), label="broadcast")  # fmt: skip
_enter("solve_triangular", lambda ns, a, b: ns.linalg.solve_triangular(a, b, upper=False),
       normal(0, 0), normal(0, 2), label="empty")  # fmt: skip
_enter("solve_triangular", lambda ns, a, b: ns.linalg.solve_triangular(a, b, upper=True),
       np.array([[1.0, 2.0], [0.0, 0.0]]), normal(2, 1), smooth=False,
       label="singular")  # fmt: skip
_enter("solve_triangular", lambda ns, a, b: ns.cholesky_solve(b, ns.tril(a)), regular(3, 3),
       normal(3, 2), label="cholesky_solve")  # fmt: skip
_enter("cholesky_inverse", lambda ns, a: ns.cholesky_inverse(ns.triu(a), upper=True),
       regular(2, 2), label="upper")  # fmt: skip
_enter("cholesky_inverse", lambda ns, a: ns.cholesky_inverse(ns.cholesky(_positive(ns, a))),
       complex_regular(2, 3, 3), label="complex")  # fmt: skip
_enter("inv", lambda ns, a: a.inverse(), normal(0, 3, 3), label="empty")
_enter("inv", lambda ns, a: ns.linalg.tensorinv(a, ind=1), regular(4, 4).reshape(4, 2, 2),
       label="tensorinv")  # fmt: skip
_enter("inv", lambda ns, a: ns.matrix_power(a, -2), regular(2, 2), label="power")
_enter("inv", lambda ns, a: ns.linalg.cond(a, 1), regular(3, 3), label="cond", torch=False)
_enter("det", lambda ns, a: a.det(), normal(1, 1), label="single")
_enter("det", lambda ns, a: ns.det(a), normal(0, 0), label="empty")
_enter("inv", lambda ns, a: ns.linalg.inv_ex(a), np.stack([regular(2, 2), np.eye(2)]),
       label="inv_ex")  # fmt: skip
_enter("inv", lambda ns, a: ns.linalg.inv_ex(a.detach()).info, np.ones((2, 2)), label="singular")
_enter("factor_system", lambda ns, a, b: ns.linalg.solve_ex(a.detach(), b).info, np.ones((2, 2)),
       normal(2, 1), label="singular")  # fmt: skip
for matrices, vectors, kind in _KINDS:
    _enter("solve_factored", lambda ns, a, b: ns.linalg.solve_ex(a, b), matrices(3, 3),
           vectors(3, 2), label=kind)  # fmt: skip
    _enter("solve_factored", lambda ns, a, b: ns.linalg.solve_ex(a, b, left=False).result,
           matrices(2, 1, 2, 2), vectors(3, 1, 2), label=f"{kind} right")  # fmt: skip
_enter("solve_factored", lambda ns, a, b: ns.linalg.solve(a, b), regular(33, 33), normal(33),
       label="vector")  # fmt: skip
_enter("cholesky", lambda ns, a: ns.linalg.cholesky_ex(_positive(ns, a)), normal(2, 2),
       label="cholesky_ex")  # fmt: skip
_enter("cholesky", lambda ns, a: ns.linalg.cholesky_ex(a.detach(), upper=True).info,
       np.diag([1.0, -1.0, 1.0]), label="not positive-definite")  # fmt: skip

# -- factorizations -----------------------------------------------------------------------------

for matrices, vectors, kind in _KINDS:
    _enter("cholesky", lambda ns, a: ns.linalg.cholesky(_positive(ns, a)), matrices(3, 3),
           label=kind)  # fmt: skip
    _enter("cholesky", lambda ns, a: ns.cholesky(_positive(ns, a), upper=True), matrices(2, 2, 2),
           label=f"{kind} upper")  # fmt: skip
    for shape in ((3, 3), (2, 4, 2), (2, 4)):
        _enter("qr", lambda ns, a: ns.linalg.qr(a), matrices(*shape), label=f"{kind} {shape}")
        _enter("lu_factor", lambda ns, a: ns.linalg.lu(a), matrices(*shape),
               label=f"{kind} {shape}")  # fmt: skip
    _enter("lu_factor", lambda ns, a, b: ns.linalg.lu_solve(*ns.linalg.lu_factor(a), b),
           matrices(3, 3), vectors(3, 1), label=f"{kind} lu_solve")  # fmt: skip
    _enter("lu_factor", lambda ns, a, b: ns.linalg.lu_solve(
               *ns.linalg.lu_factor(a), b, left=False, adjoint=True),
           matrices(2, 2), vectors(3, 2), label=f"{kind} lu_solve right")  # fmt: skip
    factored = matrices(2, 3, 3)
    _enter("permute_rows", lambda ns, b, a=factored: ns.linalg.lu_solve(
               *ns.linalg.lu_factor(ns.tensor(a, dtype=b.dtype)), b, adjoint=True),
           vectors(3, 2), label=kind)  # fmt: skip
    _enter("householder_product", lambda ns, a, t: ns.linalg.householder_product(a, t),
           vectors(2, 4, 3), vectors(2, 2), label=kind)  # fmt: skip
    for left in (False, True):
        for transpose in (False, True):
            _enter("ormqr", lambda ns, a, t, c, o=(left, transpose): ns.ormqr(a, t, c, *o),
                   vectors(3, 2), vectors(2), vectors(3, 3),
                   label=f"{kind} {left} {transpose}")  # fmt: skip
    _enter("geqrf", lambda ns, a: ns.geqrf(a.detach()), matrices(2, 3, 2), label=kind)

_enter("cholesky", lambda ns, a: ns.linalg.cholesky(a), normal(0, 2, 2), label="empty")
_enter("qr", lambda ns, a: ns.linalg.qr(a, mode="r").R, regular(3, 2), torch=False, label="r")
_enter("qr", lambda ns, a: _complement(ns.linalg.qr(a, mode="complete").Q, 2), regular(4, 2),
       torch=False, label="complete")  # fmt: skip
_enter("qr", lambda ns, a: ns.qr(a), normal(0, 2, 2), label="empty")
_enter("lu_factor", lambda ns, a: ns.linalg.lu_factor_ex(a), regular(2, 2, 2), label="info")
_enter("lu_order", lambda ns, lu, swaps: ns.lu_unpack(lu, swaps), normal(3, 3),
       np.array([2, 3, 3], np.int32))  # fmt: skip
_enter("lu_order", lambda ns, lu, swaps: ns.lu_unpack(lu, swaps).P, normal(2, 3, 2),
       np.array([[3, 2], [1, 3]], np.int32))  # fmt: skip


def _complement(q: Tensor, columns: int) -> Tensor:
    """The projection onto what a basis does not span."""
    rest = q[..., columns:]
    return rest @ rest.mH


# -- spectra ------------------------------------------------------------------------------------


def _of_eigh(ns: Any, a: Tensor, **options: object) -> object:
    values, vectors = ns.linalg.eigh(_hermitian(a), **options)
    return values, vectors.abs(), (vectors * values.cos().unsqueeze(-2)) @ vectors.mH


def _of_eig(ns: Any, a: object) -> tuple[Tensor, Tensor]:
    values, vectors = ns.linalg.eig(a)
    return values, vectors.abs()


def _of_svd(ns: Any, a: object, full_matrices: bool = False) -> object:
    u, s, vh = ns.linalg.svd(a, full_matrices)
    count = s.shape[-1]
    u, vh = u[..., :count], vh[..., :count, :]
    return s, u.abs(), vh.abs(), (u * s.cos().unsqueeze(-2)) @ vh


def _complements_of_svd(ns: Any, a: object) -> tuple[Tensor, Tensor]:
    u, s, vh = ns.linalg.svd(a)
    return _complement(u, s.shape[-1]), _complement(vh.mH, s.shape[-1])


for matrices, _, kind in _KINDS:
    _enter("eigh", _of_eigh, matrices(3, 3), label=kind)
    _enter("eigh", lambda ns, a: _of_eigh(ns, a, UPLO="U"), matrices(2, 2, 2), label=f"{kind} U")
    _enter("eigvalsh", lambda ns, a: ns.linalg.eigvalsh(_hermitian(a)), matrices(2, 3, 3),
           label=kind)  # fmt: skip
    _enter("eig", _of_eig, matrices(3, 3), label=kind)
    _enter("eigvals", lambda ns, a: ns.linalg.eigvals(a), matrices(2, 2, 2), label=kind)
    for shape in ((3, 3), (2, 3, 2), (2, 4)):
        _enter("svd", _of_svd, matrices(*shape), label=f"{kind} {shape}")
        _enter("svdvals", lambda ns, a: ns.linalg.svdvals(a), matrices(*shape),
               reference=np.linalg.svdvals, label=f"{kind} {shape}")  # fmt: skip
        _enter("pinv", lambda ns, a: ns.linalg.pinv(a), matrices(*shape), reference=np.linalg.pinv,
               label=f"{kind} {shape}")  # fmt: skip
    _enter("svd", lambda ns, a: _of_svd(ns, a, True), matrices(3, 2), label=f"{kind} full")
    _enter("svd", _complements_of_svd, matrices(4, 2), torch=False, label=f"{kind} complement")
    _enter("svd", _complements_of_svd, matrices(2, 4), torch=False, label=f"{kind} cokernel")
    _enter("pinv", lambda ns, a: ns.linalg.pinv(_hermitian(a), hermitian=True), matrices(2, 2),
           label=f"{kind} hermitian")  # fmt: skip
    _enter("pinv", lambda ns, a, b: ns.linalg.pinv(a @ b, rtol=1e-3), matrices(3, 2),
           matrices(2, 3, seed=1), label=f"{kind} of lower rank")  # fmt: skip
    for driver in ("gels", "gelsy"):
        _enter("lstsq", lambda ns, a, b, d=driver: ns.linalg.lstsq(a, b, driver=d).solution,
               matrices(4, 2), matrices(4, 2, seed=1), label=f"{kind} {driver}")  # fmt: skip
    _enter("matrix_exp", lambda ns, a: ns.linalg.matrix_exp(a), matrices(2, 3, 3), label=kind)

_enter("eigh", _of_eigh, normal(0, 2, 2), label="empty")
_enter("eig", _of_eig, normal(0, 2, 2), label="empty")
_enter("svd", _of_svd, normal(0, 3), label="empty")
_enter("svdvals", lambda ns, a: ns.linalg.svdvals(a).sum(), np.eye(2), label="equal", smooth=False)
_enter("svdvals", lambda ns, a: ns.linalg.matrix_norm(a, "nuc", keepdim=True), regular(2, 2, 3),
       label="nuclear norm")  # fmt: skip
_enter("svdvals", lambda ns, a: ns.linalg.matrix_norm(a, 2, dim=(2, 0)), regular(2, 2, 3),
       label="spectral norm")  # fmt: skip
_enter("svdvals", lambda ns, a: ns.linalg.cond(a), regular(3, 2), label="cond")
_enter("svdvals", lambda ns, a: ns.linalg.matrix_rank(a), regular(2, 3, 2), label="rank")
_enter("eigvalsh", lambda ns, a: ns.linalg.matrix_rank(_hermitian(a), hermitian=True),
       regular(2, 2, 2), label="rank")  # fmt: skip
_enter("pinv", lambda ns, a: ns.linalg.pinv(a, atol=2.0, rtol=0.1), np.diag([3.0, 2.5, 1.0]),
       smooth=False, label="cut off")  # fmt: skip
_enter("pinv", lambda ns, a, atol: ns.linalg.pinv(a, atol=atol),
       np.stack([np.diag([3.0, 1.0])] * 2), np.array([2, 0]), smooth=False,
       label="tolerances")  # fmt: skip
_enter("pinv", lambda ns, a: a.pinverse(), normal(0, 3), label="empty")
_enter("matrix_exp", lambda ns, a: a.matrix_exp(), normal(0, 0), label="empty")
_enter("matrix_exp", lambda ns, a: ns.matrix_exp(a * 4), regular(2, 2), label="squared")

# -- functions without a row of their own -------------------------------------------------------

_enter("matmul", lambda ns, a: ns.linalg.matrix_power(a, 5), regular(2, 2, 2), label="power")
_enter("matmul", lambda ns, a, b, c: ns.linalg.multi_dot([a, b, c]), normal(3), normal(3, 4),
       normal(4, 2), label="multi_dot", reference=lambda a, b, c: a @ b @ c)  # fmt: skip
sample("amax", lambda ns, a: ns.linalg.matrix_norm(a, 1), normal(2, 3, 2), label="column sums")
sample("amin", lambda ns, a: ns.linalg.matrix_norm(a, -float("inf"), (0, 2), True),
       normal(2, 3, 2), label="row sums")  # fmt: skip
sample("norm", lambda ns, a: ns.linalg.norm(a, "fro", (1, 0)), normal(2, 3, 2), label="fro")
sample("norm", lambda ns, a: ns.linalg.vector_norm(a, dim=(0, -1), keepdim=True), normal(2, 3, 2),
       label="vector_norm")  # fmt: skip
sample("sum", lambda ns, x, y: ns.linalg.vecdot(x, y, dim=0), complex_normal(3, 2),
       complex_normal(3, 2, seed=2), label="vecdot")  # fmt: skip
sample("cat", lambda ns, a, b: ns.linalg.cross(a, b), normal(2, 3), normal(1, 3), label="cross")
sample("cat", lambda ns, x: ns.linalg.vander(x, N=4), normal(3), label="vander",
       reference=lambda x: np.vander(x, 4, increasing=True))  # fmt: skip
sample("diagonal", lambda ns, a: ns.trace(a), normal(3, 2), reference=np.trace, label="trace")
sample("diagonal", lambda ns, a: ns.linalg.diagonal(a, offset=-1), normal(2, 3, 3), label="linalg")

# -- symmetric and indefinite -------------------------------------------------------------------


def _ldl(ns: Any, x: Tensor, hermitian: bool) -> Any:
    return ns.linalg.ldl_factor(x + (x.mH if hermitian else x.mT), hermitian=hermitian)


def _ldl_solve(ns: Any, a: Array, b: Tensor, hermitian: bool) -> object:
    matrix = ns.tensor(a, dtype=b.dtype)
    return ns.linalg.ldl_solve(*_ldl(ns, matrix, hermitian), b, hermitian=hermitian)


for vectors, kind in ((normal, "real"), (complex_normal, "complex")):
    for hermitian in (False, True):
        label = f"{kind} hermitian" if hermitian else kind
        _enter("ldl_factor", lambda ns, a, h=hermitian: _ldl(ns, a.detach(), h), vectors(2, 5, 5),
               smooth=False, label=label)  # fmt: skip
        matrix = vectors(4, 4)
        _enter("ldl_solve", lambda ns, b, h=hermitian, a=matrix: _ldl_solve(ns, a, b, h),
               vectors(4, 2), label=label)  # fmt: skip
_enter("ldl_factor", lambda ns, a: ns.linalg.ldl_factor_ex(a.detach()), np.zeros((3, 3)),
       smooth=False, label="zeros")  # fmt: skip
_enter("ldl_factor", lambda ns, a: ns.linalg.ldl_factor(a.detach()), normal(0, 2, 2), label="empty")
