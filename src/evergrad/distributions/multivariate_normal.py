"""The normal distribution of vectors."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import evergrad
from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.basic_constraints import Constraint
from evergrad.distributions.distribution import Distribution, expandable
from evergrad.distributions.utils import LOG_2PI, lazy_property, standard_normal

__all__ = ["MultivariateNormal"]


def matrix_times_vector(matrix: Tensor, vector: Tensor) -> Tensor:
    """Products of matrices and vectors that broadcast."""
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def log_diagonal_sum(triangle: Tensor) -> Tensor:
    """The logarithm of the determinant of a triangular matrix with a positive diagonal."""
    return triangle.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def squared_distance(factor: Tensor, offset: Tensor) -> Tensor:
    """The squared length of offsets, measured by the covariance ``factor @ factor.mT``.

    Dimensions of the offsets in front of the factor's are solved for together, as columns.
    """
    front = offset.ndim - (factor.ndim - 1)
    lead, batch = offset.shape[:front], offset.shape[front:]
    columns = offset.reshape((-1, *batch)).movedim(0, -1)
    solved = evergrad.linalg.solve_triangular(factor, columns, upper=False)
    return solved.square().sum(-2).movedim(-1, 0).reshape(lead + batch[:-1])


def factor_of_inverse(matrix: Tensor) -> Tensor:
    """The Cholesky factor of the inverse of a positive definite matrix."""
    mirrored = evergrad.linalg.cholesky(matrix.flip(-2, -1))
    inverse = mirrored.flip(-2, -1).mT
    identity = evergrad.eye(matrix.shape[-1], dtype=matrix.dtype)
    return evergrad.linalg.solve_triangular(inverse, identity, upper=False)


def the_one_given(**matrices: Tensor | None) -> tuple[str, Tensor]:
    """The name and value of the only matrix that is not ``None``."""
    given = [(name, matrix) for name, matrix in matrices.items() if matrix is not None]
    if len(given) != 1:
        raise ValueError(f"Exactly one of {' or '.join(matrices)} may be specified.")
    return given[0]


def scale_factor(name: str, matrix: Tensor) -> Tensor:
    """The lower factor of the covariance that a matrix of that name defines."""
    if name == "scale_tril":
        return matrix
    if name == "covariance_matrix":
        return evergrad.linalg.cholesky(matrix)
    return factor_of_inverse(matrix)


class CovarianceForms(Distribution):
    """A covariance in its three forms, each computed lazily from the lower factor."""

    _not_expanded = ("_unbroadcasted_scale_tril",)
    _unbroadcasted_scale_tril: Tensor

    def _for_batch(self, matrix: Tensor) -> Tensor:
        return matrix.expand(self._batch_shape + matrix.shape[-2:])

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower factor of the covariance."""
        return self._for_batch(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        factor = self._unbroadcasted_scale_tril
        return self._for_batch(factor @ factor.mT)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        return self._for_batch(evergrad.cholesky_inverse(self._unbroadcasted_scale_tril))


@expandable
class MultivariateNormal(CovarianceForms):
    """The normal distribution of vectors. One of the three matrices is given.

    Args:
        loc: the mean.
        covariance_matrix: positive definite.
        precision_matrix: the inverse of the covariance.
        scale_tril: its lower factor with a positive diagonal, the cheapest.

    >>> d = eg.distributions.MultivariateNormal(eg.zeros(2), covariance_matrix=eg.eye(2))
    >>> d.sample((3,)).shape
    evergrad.Size([3, 2])
    >>> d.log_prob(eg.tensor([0.0, 0.0]))
    tensor(-1.8379)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support: Constraint = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.ndim < 1:
            raise ValueError("loc must be at least one-dimensional.")
        name, matrix = the_one_given(
            covariance_matrix=covariance_matrix,
            precision_matrix=precision_matrix,
            scale_tril=scale_tril,
        )
        if matrix.ndim < 2:
            what = "scale_tril matrix" if name == "scale_tril" else name
            raise ValueError(
                f"{what} must be at least two-dimensional, with optional leading batch dimensions"
            )
        batch = evergrad.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        setattr(self, name, matrix.expand((*batch, -1, -1)))
        self.loc: Tensor = loc.expand((*batch, -1))
        super().__init__(batch, self.loc.shape[-1:], validate_args=validate_args)
        self._unbroadcasted_scale_tril = scale_factor(name, matrix)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        variance = self._unbroadcasted_scale_tril.pow(2).sum(-1)
        return variance.expand(self._batch_shape + self._event_shape)

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        noise = standard_normal(self._extended_shape(sample_shape), self.loc.dtype)
        return self.loc + matrix_times_vector(self._unbroadcasted_scale_tril, noise)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        factor = self._unbroadcasted_scale_tril
        distance = squared_distance(factor, value - self.loc)
        return -0.5 * (self._event_shape[0] * LOG_2PI + distance) - log_diagonal_sum(factor)

    def entropy(self) -> Tensor:
        log_volume = log_diagonal_sum(self._unbroadcasted_scale_tril)
        entropy: Any = 0.5 * self._event_shape[0] * (1.0 + LOG_2PI) + log_volume
        return entropy.expand(self._batch_shape)
