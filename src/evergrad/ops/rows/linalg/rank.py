"""What depends on a numerical rank: pseudo-inverses, ranks and least squares.

A singular value counts as zero if it is at most ``max(atol, rtol * largest)``. Derivatives are
those at constant rank, and exact if the values that count as zero are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad import return_types
from evergrad.core import dtypes
from evergrad.core.autocast import as_lowered, autocast_policy
from evergrad.core.bind import bind
from evergrad.core.dtypes import dtype
from evergrad.core.families import opaque
from evergrad.core.op import ArgType, Op
from evergrad.core.row_facts import AutocastPolicy
from evergrad.core.shapes import TensorType, broadcast_shapes, tensor_type
from evergrad.core.tensor import Array, Tensor
from evergrad.ops.rows.creation.constants import zeros
from evergrad.ops.rows.elementwise.basic import maximum, square, where
from evergrad.ops.rows.elementwise.magnitude import abs as absolute
from evergrad.ops.rows.linalg import spectral_kernels as spectral
from evergrad.ops.rows.linalg.base import (
    BY_LAPACK,
    LINALG,
    adjoint,
    check_matrix,
    check_same_dtype,
    check_square,
    complain,
    not_converged,
)
from evergrad.ops.rows.linalg.solve import batch_stack
from evergrad.ops.rows.linalg.spectra import eigvalsh, svdvals
from evergrad.ops.rows.matmul import matmul
from evergrad.ops.rows.movement.slices import narrow
from evergrad.ops.rows.movement.views import reshape, sum_to_type, to_front, unsqueeze
from evergrad.ops.rows.reduce.extrema import amax
from evergrad.ops.rows.reduce.sums import sum as total
from evergrad.ops.surface.public import expose

if TYPE_CHECKING:
    from evergrad.return_types import linalg_lstsq

# -- tolerances ---------------------------------------------------------------------------------


def _default_rtol(A: Tensor) -> float:
    return dtypes.finfo(A.dtype.to_real()).eps * max(A._type.shape[-2:])


def _tolerances(A: Tensor, atol: Any, rtol: object) -> tuple[object, object]:
    """Both tolerances: by default relative to the precision, unless an absolute one is given."""
    if rtol is None:
        rtol = _default_rtol(A)
        if isinstance(atol, Tensor):
            rtol = where(atol > 0, 0.0, rtol)
        elif atol is not None and atol > 0:
            rtol = 0.0
    return (0.0 if atol is None else atol), rtol


# -- pseudo-inverses ----------------------------------------------------------------------------


def _pinv_types(types: Sequence[ArgType]) -> tuple[dtype, dtype, dtype]:
    (a, *_) = types
    assert isinstance(a, TensorType)
    return a.dtype, a.dtype.to_real(), a.dtype.to_real()


def _pinv_type(a: TensorType, atol: TensorType, rtol: TensorType, *, hermitian: bool) -> TensorType:
    batch = broadcast_shapes(a.shape[:-2], atol.shape, rtol.shape)
    return tensor_type((*batch, a.shape[-1], a.shape[-2]), a.dtype)


def _pinv_eval(a: Array, atol: float | Array, rtol: float | Array, *, hermitian: bool) -> Array:
    try:
        if hermitian:
            s, u = spectral.eigh(a, "L")
            vh = np.conj(np.swapaxes(u, -2, -1))
        else:
            u, s, vh = spectral.svd(a, full=False)
    except np.linalg.LinAlgError:
        raise not_converged("linalg.svd") from None
    largest = np.max(np.abs(s), axis=-1, initial=0)
    cutoff = np.maximum(atol, rtol * largest)[..., None]
    inverse = np.where(np.abs(s) > cutoff, 1 / s, 0)
    v, uh = (np.conj(np.swapaxes(x, -2, -1)) for x in (vh, u))
    return (v * inverse[..., None, :]) @ uh


def _pinv_vjp(
    g: Tensor, p: Tensor, a: Tensor, atol: Tensor, rtol: Tensor, *, hermitian: bool
) -> tuple[Tensor, None, None]:
    """The transpose of :func:`_pinv_jvp`, with products of the smaller size first."""
    ph, gh = adjoint(p), adjoint(g)
    if a._type.shape[-2] <= a._type.shape[-1]:
        inner = matmul(gh, p)
        outside = matmul(inner, ph)
        found = (
            outside - matmul(matmul(a, p), outside)
            + matmul(matmul(ph, p), gh - matmul(inner, a))
            - adjoint(matmul(p, inner))
        )  # fmt: skip
    else:
        inner = matmul(p, gh)
        outside = matmul(ph, inner)
        found = (
            outside - matmul(matmul(outside, p), a)
            + matmul(matmul(gh - matmul(a, inner), p), ph)
            - adjoint(matmul(inner, p))
        )  # fmt: skip
    return sum_to_type(found, a._type), None, None


def _pinv_jvp(
    tangents: tuple[Tensor, None, None],
    p: Tensor,
    a: Tensor,
    atol: Tensor,
    rtol: Tensor,
    *,
    hermitian: bool,
) -> Tensor:
    """Golub and Pereyra's formula for the change at constant rank."""
    change, turned = tangents[0], adjoint(tangents[0])
    ph = adjoint(p)
    beside = matmul(matmul(p, ph), turned)
    above = matmul(turned, matmul(ph, p))
    return (
        beside - matmul(matmul(beside, a), p) + above - matmul(p, matmul(a, above))
        - matmul(p, matmul(change, p))
    )  # fmt: skip


def _batch_pinv(op: Op, args: Sequence[Any], dims: Sequence[int | None], **attrs: object) -> object:
    """The tolerances lack the two dimensions of a matrix."""
    aligned = []
    depth = max(
        x.ndim - (at is not None) - missing
        for x, at, missing in zip(args, dims, (2, 0, 0), strict=True)
        if isinstance(x, Tensor)
    )
    for x, at, own in zip(args, dims, (2, 0, 0), strict=True):
        if at is not None:
            x = to_front(x, at)
            shape = x._type.shape
            x = reshape(x, (shape[0],) + (1,) * (depth + own - len(shape) + 1) + shape[1:])
        aligned.append(x)
    return bind(op, *aligned, **attrs), 0


PINV = opaque("pinv", _pinv_eval, _pinv_type, _pinv_vjp, jvp=_pinv_jvp, batch=_batch_pinv,
              promote=_pinv_types,
              emit=BY_LAPACK, autocast=AutocastPolicy.KEEP,
              doc="The pseudo-inverse.")  # fmt: skip


@expose(method=False, into=LINALG)
def pinv(
    input: Tensor,
    rcond: object = None,
    hermitian: bool = False,
    *,
    atol: object = None,
    rtol: object = None,
) -> Tensor:
    """The pseudo-inverse; ``rcond`` is the older name of ``rtol``."""
    check_matrix("linalg.pinv", input)
    if hermitian:
        check_square("linalg.pinv", input)
    atol, rtol = _tolerances(input, atol, rtol if rcond is None else rcond)
    if not input._type.numel:  # then tolerances of any shape will do
        atol, rtol = 0.0, 0.0
    found: Tensor = bind(PINV, input, atol, rtol, hermitian=bool(hermitian))
    return as_lowered(found)  # as PyTorch's last product


@expose()
@autocast_policy(AutocastPolicy.FLOAT32)
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """The pseudo-inverse.

    Args:
        input: matrices (*, m, n)
        rcond: singular values below this share of the largest count as 0; default 1e-15
        out: where to write the result

    The older name of :func:`linalg.pinv`.

    >>> eg.pinverse(eg.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor([[0.5000, 0.0000],
            [0.0000, 0.2500]])
    """
    return pinv(input, rcond)


# -- ranks --------------------------------------------------------------------------------------


def _largest(s: Tensor) -> Tensor:
    """The largest singular value, given them in descending order; 0 of none."""
    shape = s._type.shape
    if not shape[-1]:
        return zeros(shape[:-1], dtype=s.dtype)
    return reshape(narrow(s, -1, 0, 1), shape[:-1])


@expose(method=False, into=LINALG)
@autocast_policy(AutocastPolicy.FLOAT32)
def matrix_rank(
    input: Tensor,
    tol: object = None,
    hermitian: bool = False,
    *,
    atol: object = None,
    rtol: Any = None,
) -> Tensor:
    """How many singular values are not zero; ``tol`` is an older way to give ``atol`` alone."""
    check_matrix("linalg.matrix_rank", input, "input")
    if tol is not None:
        atol, rtol = tol, 0.0
    atol, rtol = _tolerances(input, atol, rtol)
    plain = input.detach()
    if hermitian:
        s = absolute(eigvalsh(plain))
        largest = amax(s, -1) if s._type.shape[-1] else _largest(s)
    else:
        s = svdvals(plain)
        largest = _largest(s)
    scaled = largest * rtol
    cutoff = maximum(scaled, atol)
    return total(s > unsqueeze(cutoff, -1), -1)


# -- least squares ------------------------------------------------------------------------------

_DRIVERS = ("gels", "gelsy", "gelsd", "gelss")


def _lstsq_eval(a: Array, b: Array, *, rtol: float, driver: str) -> object:
    if not np.isfinite(a).all():
        raise not_converged("linalg.lstsq")
    *found, info = spectral.lstsq(a, b, rtol, driver)
    if info.any():
        text = "The least squares solution could not be computed because the input matrix does not "
        if driver == "gels":
            raise complain("torch.linalg.lstsq", info, text + "have full rank (error code: {}).")
        raise not_converged("linalg.lstsq")
    return tuple(found)


def _lstsq_type(
    a: TensorType, b: TensorType, *, rtol: float, driver: str
) -> tuple[TensorType, TensorType, TensorType]:
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    *_, rows, columns = a.shape
    return (
        tensor_type((*batch, columns, b.shape[-1]), a.dtype),
        tensor_type(batch, dtypes.int64),
        tensor_type((*batch, min(rows, columns)), a.dtype.to_real()),
    )


def _pinv_and_tolerances(a: Tensor, rtol: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    atol, relative = (zeros((), dtype=a.dtype.to_real()) + t for t in (0.0, rtol))
    return bind(PINV, a, atol, relative, hermitian=False), a, atol, relative


def _lstsq_vjp(
    g: tuple[Tensor, Tensor, Tensor], out: object, a: Tensor, b: Tensor, *, rtol: float, driver: str
) -> tuple[Tensor, Tensor]:
    """That of the pseudo-inverse times ``b``."""
    p, *known = _pinv_and_tolerances(a, rtol)
    for_a, _, _ = _pinv_vjp(matmul(g[0], adjoint(b)), p, *known, hermitian=False)
    return for_a, sum_to_type(matmul(adjoint(p), g[0]), b._type)


def _lstsq_jvp(
    tangents: Sequence[Tensor],
    out: tuple[Tensor, Tensor, Tensor],
    a: Tensor,
    b: Tensor,
    *,
    rtol: float,
    driver: str,
) -> tuple[Tensor, None, None]:
    ta, tb = tangents
    p, *known = _pinv_and_tolerances(a, rtol)
    moved = None if tb is None else matmul(p, tb)
    if ta is not None:
        turned = matmul(_pinv_jvp((ta, None, None), p, *known, hermitian=False), b)
        moved = turned if moved is None else moved + turned
    return moved, None, None


LSTSQ = opaque(
    "lstsq", _lstsq_eval, _lstsq_type, _lstsq_vjp, jvp=_lstsq_jvp, batch=batch_stack, outputs=3,
    emit=BY_LAPACK, autocast=AutocastPolicy.KEEP,
    doc="The shortest X that brings A X closest to B, ranks and singular values of A.",
)  # fmt: skip


@expose(method=False, into=LINALG)
@autocast_policy(AutocastPolicy.FLOAT32)
def lstsq(
    input: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> linalg_lstsq:
    """The shortest X that brings ``input @ X`` closest to ``b``.

    ``driver`` is LAPACK's: by QR (``gels``, for matrices of full rank), by QR with pivots
    (``gelsy``), or by singular values. It decides which of the other results are filled.
    """
    name = "linalg.lstsq"
    check_matrix(name, input, "input")
    check_same_dtype(name, input, b)
    driver = "gelsy" if driver is None else driver
    if driver not in _DRIVERS:
        raise RuntimeError(f"{name}: parameter `driver` should be one of ({', '.join(_DRIVERS)})")
    shape = input._type.shape
    vector = b.ndim == 1 or (b.ndim == input.ndim - 1 and b._type.shape == shape[:-1])
    right = unsqueeze(b, -1) if vector else b
    if right.ndim < 2 or right._type.shape[-2] != shape[-2]:
        raise RuntimeError(
            f"{name}: input.size(-2) should match other.size({-1 if vector else -2})"
        )
    rtol = _default_rtol(input) if rcond is None else rcond
    x, rank, s = bind(LSTSQ, input, right, rtol=float(rtol), driver=driver)
    residuals = _residuals(input, right, x, rank, driver)
    nothing = zeros((0,), dtype=input.dtype.to_real())
    if driver in ("gels", "gelsy"):
        s = nothing
    if driver == "gels":
        rank = zeros((0,), dtype=dtypes.int64)
    solution = reshape(x, x._type.shape[:-1]) if vector else x
    return return_types.linalg_lstsq(solution, residuals, rank, s)


def _residuals(A: Tensor, B: Tensor, X: Tensor, rank: Tensor, driver: str) -> Tensor:
    """The squared distances left, where a driver gives them: for more rows than columns."""
    rows, columns = A._type.shape[-2:]
    given = driver != "gelsy" and rows > columns
    if given and driver != "gels":
        given = bool((rank == columns).all())
    if not given:
        return zeros((0,), dtype=A.dtype.to_real())
    return total(square(absolute(B - matmul(A, X))), -2)
