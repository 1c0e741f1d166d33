"""Determinants.

At the edges: the gradient of ``det`` is exact for singular matrices too, its second derivatives are
for others; the gradient of ``slogdet`` of a singular matrix is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad import return_types
from evergrad.core.bind import bind, cast
from evergrad.core.families import opaque
from evergrad.core.row_facts import AutocastPolicy
from evergrad.core.shapes import TensorType, tensor_type
from evergrad.core.tensor import Array, Tensor
from evergrad.ops.rows.creation.constants import zeros_like
from evergrad.ops.rows.elementwise.basic import log, where
from evergrad.ops.rows.elementwise.magnitude import conj
from evergrad.ops.rows.linalg import kernels
from evergrad.ops.rows.linalg import spectral_kernels as spectral
from evergrad.ops.rows.linalg.base import BY_LAPACK, LINALG, adjoint, check_square
from evergrad.ops.rows.linalg.solve import INV, batch_stack
from evergrad.ops.rows.matmul import matmul
from evergrad.ops.rows.movement.complex_parts import imag, real
from evergrad.ops.rows.movement.views import reshape, transpose
from evergrad.ops.rows.reduce.sums import sum as total
from evergrad.ops.surface.public import expose

if TYPE_CHECKING:
    from evergrad import return_types


def _scalar_type(a: TensorType) -> TensorType:
    return tensor_type(a.shape[:-2], a.dtype)


def _spread_over_matrix(x: Tensor) -> Tensor:
    return reshape(x, (*x._type.shape, 1, 1))


def _det_vjp(g: Tensor, y: Tensor, a: Tensor) -> Tensor:
    return _spread_over_matrix(g) * conj(cofactor(a))


def _det_jvp(tangents: Sequence[Tensor], y: Tensor, a: Tensor) -> Tensor:
    return total(cofactor(a) * tangents[0], (-2, -1))


DET = opaque("det", kernels.det, _scalar_type, _det_vjp, jvp=_det_jvp, batch=batch_stack,
             emit=BY_LAPACK, autocast=AutocastPolicy.KEEP,
             doc="The determinant of each matrix.")  # fmt: skip


def _products_of_others(s: Array) -> Array:
    """For each number the product of all others along the last dimension."""
    ones = np.ones_like(s[..., :1])
    before = np.cumprod(np.concatenate([ones, s[..., :-1]], -1), -1)
    after = np.cumprod(np.concatenate([ones, s[..., :0:-1]], -1), -1)[..., ::-1]
    return before * after


def _cofactor_eval(a: Array) -> object:
    """By inverse and determinant of the same factors, in whose product the errors of a small pivot
    cancel; by singular values where a pivot is zero."""
    if not np.isfinite(a).all():
        return np.full(a.shape, np.nan, a.dtype)
    if not a.size:
        return np.zeros_like(a)
    inverse, det = kernels.inverse_and_det(a)
    if np.isfinite(inverse).all():
        return np.swapaxes(inverse, -2, -1) * det[..., None, None]
    return _cofactor_by_singular_values(a)


def _cofactor_by_singular_values(a: Array) -> object:
    u, s, vh = spectral.svd(a, full=False)
    phase = kernels.det(u) * kernels.det(vh)
    weights = _products_of_others(s) * phase[..., None]
    return (np.conj(u) * weights[..., None, :]) @ np.conj(vh)


def _cofactor_linear(g: Tensor, c: Tensor, a: Tensor) -> Tensor:
    """The change of the cofactors for a change ``g`` of the matrix; symmetric in both."""
    along = _spread_over_matrix(total(g * c, (-2, -1))) * c
    across = matmul(c, matmul(transpose(g, -2, -1), c))
    return (along - across) / _spread_over_matrix(bind(DET, a))


COFACTOR = opaque(
    "cofactor", _cofactor_eval, lambda a: a,
    lambda g, c, a: conj(_cofactor_linear(conj(g), c, a)),
    jvp=lambda tangents, c, a: _cofactor_linear(tangents[0], c, a),
    batch=batch_stack,
    emit=BY_LAPACK, autocast=AutocastPolicy.KEEP,
    doc="The slope of the determinant by each element.",
)  # fmt: skip


def cofactor(A: Tensor) -> Tensor:
    """The slope of the determinant by each element."""
    return bind(COFACTOR, A)  # type: ignore[no-any-return]


def _slogdet_type(a: TensorType) -> tuple[TensorType, TensorType]:
    batch = a.shape[:-2]
    return tensor_type(batch, a.dtype), tensor_type(batch, a.dtype.to_real())


def _slogdet_vjp(g: Sequence[Tensor], out: Sequence[Tensor], a: Tensor) -> Tensor:
    (for_sign, for_size), (sign, _) = g, out
    weight = for_size
    if a.dtype.is_complex:
        turning = imag(conj(for_sign) * sign)
        weight = cast(for_size, a.dtype) - cast(turning, a.dtype) * 1j
    return _spread_over_matrix(weight) * adjoint(bind(INV, a, check=False)[0])


def _slogdet_jvp(tangents: Any, out: Sequence[Tensor], a: Tensor) -> tuple[Tensor, Tensor]:
    inverse_turned = transpose(bind(INV, a, check=False)[0], -2, -1)
    change = total(inverse_turned * tangents[0], (-2, -1))
    if not a.dtype.is_complex:
        return zeros_like(out[0]), change
    return out[0] * (cast(imag(change), a.dtype) * 1j), real(change)


SLOGDET = opaque("slogdet", kernels.slogdet, _slogdet_type, _slogdet_vjp, jvp=_slogdet_jvp,
                 batch=batch_stack, outputs=2,
                 emit=BY_LAPACK, autocast=AutocastPolicy.KEEP,
                 doc="Sign and logarithm of the size of each determinant.")  # fmt: skip


@expose("det", method=False, into=LINALG)
def _linalg_det(A: Tensor) -> Tensor:
    """The determinant of each matrix."""
    check_square("linalg.det", A)
    return bind(DET, A)  # type: ignore[no-any-return]


@expose()
def det(input: Tensor) -> Tensor:
    """The determinant of each matrix."""
    return _linalg_det(input)


@expose("slogdet", method=False, into=LINALG)
def _linalg_slogdet(A: Tensor) -> return_types.linalg_slogdet:
    """The sign of each determinant (a complex number of size 1) and the logarithm of its size."""
    check_square("linalg.slogdet", A)
    return return_types.linalg_slogdet(*bind(SLOGDET, A))


@expose()
def slogdet(input: Tensor) -> return_types.slogdet:
    """The sign of each determinant (a complex number of size 1) and the logarithm of its size."""
    return return_types.slogdet(*_linalg_slogdet(input))


@expose(out=False)
def logdet(input: Tensor) -> Tensor:
    """The logarithm of each determinant; NaN where a real one is negative."""
    check_square("logdet", input)
    sign, size = bind(SLOGDET, input)
    if input.dtype.is_complex:
        return log(sign) + size  # type: ignore[no-any-return]
    return where(sign == -1, math.nan, size)
