"""The matrix exponential, on stacks of matrices; plain NumPy on arrays."""

from __future__ import annotations

import numpy as np

from evergrad.core.types import Array

# For each precision the coefficients of a Pade approximant and the norm up to which it is exact to
# rounding (Higham, "The scaling and squaring method for the matrix exponential revisited", 2005).
_PADE_7 = (17297280.0, 8648640.0, 1995840.0, 277200.0, 25200.0, 1512.0, 56.0, 1.0)
_PADE_13 = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0,
    129060195264000.0, 10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0,
    40840800.0, 960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
_APPROXIMANTS = {4: (_PADE_7, 3.925724783138660), 8: (_PADE_13, 5.371920351148152)}


def matrix_exp(a: Array) -> Array:
    """The exponential of each matrix, by scaling, a rational approximation, and squaring."""
    coefficients, reach = _APPROXIMANTS[a.real.dtype.itemsize]
    norm = np.max(np.sum(np.abs(a), axis=-2), axis=-1, initial=0)
    finite = np.isfinite(norm)
    ratio = np.where(finite & (norm > reach), norm / reach, 1)
    halvings = np.ceil(np.log2(ratio)).astype(np.int64)
    scale = np.exp2(-halvings).astype(a.real.dtype)[..., None, None]
    result = _pade(np.where(finite[..., None, None], a, 0) * scale, coefficients)
    for step in range(int(np.max(halvings, initial=0))):
        result = np.where((halvings > step)[..., None, None], result @ result, result)
    return np.where(finite[..., None, None], result, np.nan).astype(a.dtype, copy=False)


def _pade(a: Array, coefficients: tuple[float, ...]) -> Array:
    """``q(-a)^-1 q(a)`` with the polynomial ``q``, split into its even and odd part."""
    first = coefficients[0]  # divided by, so that the exponential of 0 is exactly 1
    identity = np.eye(a.shape[-1], dtype=a.dtype)
    square = a @ a
    power = identity
    even, odd = identity, coefficients[1] / first * identity
    for lower, higher in zip(coefficients[2::2], coefficients[3::2], strict=True):
        power = power @ square
        even = even + lower / first * power
        odd = odd + higher / first * power
    odd = a @ odd
    return np.asarray(np.linalg.solve(even - odd, even + odd))
