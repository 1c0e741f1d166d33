"""Constraints of vectors and matrices."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import evergrad
from evergrad.core.tensor import Tensor
from evergrad.distributions.basic_constraints import Constraint


class _OneHot(Constraint):
    """A 1 among zeros."""

    is_discrete = True
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        is_boolean = (value == 0) | (value == 1)
        return is_boolean.all(-1) & (value.sum(-1) == 1)


class _Simplex(Constraint):
    """Numbers from 0 up that add up to 1."""

    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _Multinomial(Constraint):
    """Counts that add up to at most a bound."""

    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: Tensor | float) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)


# -- matrices -----------------------------------------------------------------------------------


def _everywhere(holds: Tensor) -> Tensor:
    return holds.flatten(-2).all(-1)


class _LowerTriangular(Constraint):
    """Zeros above the diagonal."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        return _everywhere(value.tril() == value)


class _LowerCholesky(Constraint):
    """Zeros above a positive diagonal."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        diagonal = value.diagonal(dim1=-2, dim2=-1)
        return _everywhere(value.tril() == value) & (diagonal > 0).all(-1)


class _CorrCholesky(Constraint):
    """Zeros above a positive diagonal, and rows of length 1."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        # Rounding adds up along a row.
        tolerance = evergrad.finfo(value.dtype).eps * value.shape[-1] * 10
        lengths = value.detach().norm(dim=-1)
        has_unit_rows = ((lengths - 1).abs() <= tolerance).all(-1)
        return has_unit_rows & _LowerCholesky().check(value)


class _Square(Constraint):
    """As many rows as columns."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        is_square = value.shape[-2] == value.shape[-1]
        return evergrad.full(value.shape[:-2], is_square, dtype=evergrad.bool)


class _Symmetric(_Square):
    """Square, and equal to its transpose up to rounding."""

    def check(self, value: Tensor) -> Tensor:
        if value.shape[-2] != value.shape[-1]:
            return super().check(value)
        return _everywhere(evergrad.isclose(value, value.mT, atol=1e-6))


class _PositiveSemidefinite(_Symmetric):
    """Symmetric, without negative eigenvalues."""

    def check(self, value: Tensor) -> Tensor:
        if value.shape[-2] != value.shape[-1]:
            return super().check(value)
        return super().check(value) & (evergrad.linalg.eigvalsh(value) >= 0).all(-1)


class _PositiveDefinite(_Symmetric):
    """Symmetric, with positive eigenvalues only."""

    def check(self, value: Tensor) -> Tensor:
        if value.shape[-2] != value.shape[-1]:
            return super().check(value)
        return super().check(value) & (evergrad.linalg.cholesky_ex(value).info == 0)
