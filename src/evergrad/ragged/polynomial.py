"""Values as polynomials: ``c[i, j, ...]`` is the coefficient of ``x^i y^j ...``.

Convolution is the product of polynomials, and addition their sum: :func:`evaluate` is a ring
homomorphism to the numbers, at any point.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from evergrad.core.dtypes import dtype
from evergrad.core.dtypes import promote_types as promoted
from evergrad.core.shapes import broadcast_shapes
from evergrad.core.tensor import Tensor as Dense
from evergrad.ops.composite.activations import widened
from evergrad.ops.rows.creation.constants import zeros
from evergrad.ops.rows.linalg.spectra import eigvals
from evergrad.ops.rows.movement.joining import cat
from evergrad.ops.rows.movement.views import expand, reshape
from evergrad.ops.surface.convert import as_tensor
from evergrad.ragged.value import Tensor, tensor


def evaluate(value: Tensor, *points: object) -> Dense:
    """The polynomial at points: one coordinate for each dimension, numbers or dense tensors that
    broadcast together. Dimensions without a coordinate are evaluated at zero, by Horner's rule::

        >>> ragged.evaluate(ragged.tensor([1.0, 0.0, 2.0]), 3.0)
        tensor(19.)
    """
    _require_tensor("evaluate", value)
    found = value.dense
    coordinates = [p if isinstance(p, Dense) else _coordinate(p, value.dtype) for p in points]
    rank = max(found.ndim, len(coordinates))
    found = reshape(found, (*found._type.shape, *(1,) * (rank - found.ndim)))
    missing = [zeros((), dtype=value.dtype)] * (rank - len(coordinates))
    for done, x in enumerate(reversed([*coordinates, *missing])):
        found = _horner(found, x, rank - 1 - done)
    return found


def _coordinate(point: object, kind: dtype) -> Dense:
    """A number or an array in the element type of a value, or of a larger category if its own is:
    integers are evaluated at fractions, real polynomials at complex points."""
    own = as_tensor(point).dtype
    return as_tensor(point, dtype=kind if own.category <= kind.category else promoted(own, kind))


def _require_tensor(name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}(): expected a ragged.Tensor, got {type(value).__name__}")


def _horner(coefficients: Dense, x: Dense, dim: int) -> Dense:
    """One dimension evaluated; dimensions behind it are those of points, which ``x`` broadcasts
    with."""
    shape = coefficients._type.shape
    behind = len(shape) - 1 - dim
    parts = [_spread(part, dim, x.ndim - behind) for part in coefficients.unbind(dim)]
    if not parts:
        nothing = zeros((*shape[:dim], *shape[dim + 1 :]), dtype=coefficients.dtype)
        parts = [_spread(nothing, dim, x.ndim - behind)]
    point = reshape(x, (*(1,) * max(0, behind - x.ndim), *x._type.shape))
    if len(parts) == 1:
        return expand(parts[0], broadcast_shapes(parts[0]._type.shape, point._type.shape))
    total = parts[-1]
    for part in reversed(parts[:-1]):
        total = total * point + part
    return total


def _spread(part: Dense, dim: int, count: int) -> Dense:
    """With singleton dimensions for those that points have and it has not."""
    shape = part._type.shape
    return reshape(part, (*shape[:dim], *(1,) * max(0, count), *shape[dim:]))


def roots(value: Tensor) -> Dense:
    """The complex roots of a polynomial in one variable: the eigenvalues of its companion matrix.
    Trailing zeros are dropped first. The zero polynomial has no roots that could be listed.

    >>> ragged.roots(ragged.tensor([-2.0, 1.0]))
    tensor([2.+0.j])
    """
    _require_tensor("roots", value)
    coefficients = widened(value.shrunk().dense)
    if coefficients.ndim != 1 or not coefficients.numel():
        raise ValueError(f"roots(): a polynomial in one variable that is not zero, got {value}")
    degree = coefficients.numel() - 1
    if degree == 0:
        return zeros((0,), dtype=coefficients.dtype.to_complex())
    last = reshape(-coefficients[:-1] / coefficients[-1], (degree, 1))
    shift = tensor(np.eye(degree, degree - 1, -1), coefficients.dtype).dense
    return eigvals(cat([shift, last], 1))


def from_polynomial(polynomial: Any) -> Tensor:
    """A value from a polynomial of :mod:`numpy.polynomial`, of any domain and window. Those in
    another basis (Chebyshev, Legendre, ...) are converted to powers.

    >>> ragged.from_polynomial(np.polynomial.Polynomial([1.0, 2.0]))
    ragged.tensor([1., 2.], dtype=evergrad.float64)
    """
    monomials = polynomial.convert([-1, 1], np.polynomial.Polynomial, [-1, 1])
    return tensor(np.asarray(monomials.coef))


def to_polynomial(value: Tensor) -> np.polynomial.Polynomial:
    """A value of one dimension as a :class:`numpy.polynomial.Polynomial`.

    >>> a, b = ragged.tensor([1.0, 2.0, 3.0]), ragged.tensor([4.0, 5.0])
    >>> ragged.to_polynomial(a)
    Polynomial([1., 2., 3.], dtype=float32, domain=[-1.,  1.], window=[-1.,  1.], symbol='x')
    """
    if any(n != 1 for n in value.shape[1:]):
        raise ValueError(
            f"to_polynomial(): one variable, got a value of shape {tuple(value.shape)}"
        )
    coefficients = value.dense.detach().numpy().reshape(-1)
    return np.polynomial.Polynomial(coefficients if coefficients.size else [0.0])
