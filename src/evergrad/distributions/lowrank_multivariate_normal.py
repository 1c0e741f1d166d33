"""The normal distribution of vectors whose covariance is a diagonal and a few directions."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import evergrad
from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.basic_constraints import Constraint
from evergrad.distributions.distribution import Distribution, expandable
from evergrad.distributions.multivariate_normal import (
    log_diagonal_sum,
    matrix_times_vector,
    squared_distance,
)
from evergrad.distributions.utils import LOG_2PI, lazy_property, standard_normal

__all__ = ["LowRankMultivariateNormal"]


def capacitance_factor(factor: Tensor, diagonal: Tensor) -> Tensor:
    """The Cholesky factor of ``1 + W.mT @ inv(D) @ W``, as small as there are directions."""
    inner = (factor.mT / diagonal.unsqueeze(-2)) @ factor
    return evergrad.linalg.cholesky(inner + evergrad.eye(factor.shape[-1], dtype=factor.dtype))


def low_rank_log_det(diagonal: Tensor, capacitance: Tensor) -> Tensor:
    """The logarithm of the determinant of the covariance, by the determinant lemma."""
    return 2 * log_diagonal_sum(capacitance) + diagonal.log().sum(-1)


def low_rank_distance(
    factor: Tensor, diagonal: Tensor, offset: Tensor, capacitance: Tensor
) -> Tensor:
    """The squared length of offsets, measured by the covariance, by Woodbury's formula."""
    along = matrix_times_vector(factor.mT / diagonal.unsqueeze(-2), offset)
    return (offset.pow(2) / diagonal).sum(-1) - squared_distance(capacitance, along)


@expandable
class LowRankMultivariateNormal(Distribution):
    """The normal distribution of vectors, with covariance ``W @ W.mT + diag(d)``.

    Densities cost what the few columns of W cost, not a factorization of the covariance.

    Args:
        loc: the mean.
        cov_factor: W, with as many rows as the vector has elements.
        cov_diag: d, positive.

    >>> d = eg.distributions.LowRankMultivariateNormal(eg.zeros(2), eg.ones(2, 1), eg.ones(2))
    >>> d.covariance_matrix
    tensor([[2., 1.],
            [1., 2.]])
    >>> d.log_prob(eg.tensor([0.0, 0.0]))
    tensor(-2.3872)
    """

    cov_diag: Tensor
    cov_factor: Tensor
    loc: Tensor

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support: Constraint = constraints.real_vector
    has_rsample = True
    _not_expanded = (
        "_unbroadcasted_cov_factor", "_unbroadcasted_cov_diag", "_capacitance_tril",
    )  # fmt: skip

    def __init__(
        self,
        loc: Tensor,
        cov_factor: Tensor,
        cov_diag: Tensor,
        validate_args: bool | None = None,
    ) -> None:
        _check_shapes(loc, cov_factor, cov_diag)
        try:
            means, factor, diagonal = evergrad.broadcast_tensors(
                loc.unsqueeze(-1), cov_factor, cov_diag.unsqueeze(-1)
            )
        except RuntimeError as error:
            raise ValueError(
                f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, "
                f"cov_diag {cov_diag.shape}"
            ) from error
        self.loc, self.cov_factor, self.cov_diag = means[..., 0], factor, diagonal[..., 0]
        shape = self.loc.shape
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)
        self._unbroadcasted_cov_factor = cov_factor
        self._unbroadcasted_cov_diag = cov_diag
        self._capacitance_tril = capacitance_factor(cov_factor, cov_diag)

    def _for_batch(self, matrix: Tensor) -> Tensor:
        return matrix.expand(self._batch_shape + self._event_shape + self._event_shape)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> Tensor:
        variance = self._unbroadcasted_cov_factor.pow(2).sum(-1) + self._unbroadcasted_cov_diag
        return variance.expand(self._batch_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower factor of the covariance."""
        deviation = self._unbroadcasted_cov_diag.sqrt().unsqueeze(-1)
        scaled = self._unbroadcasted_cov_factor / deviation
        identity = evergrad.eye(self._event_shape[0], dtype=scaled.dtype)
        inner = evergrad.linalg.cholesky(scaled @ scaled.mT + identity)
        return self._for_batch(deviation * inner)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        factor = self._unbroadcasted_cov_factor
        return self._for_batch(factor @ factor.mT + self._unbroadcasted_cov_diag.diag_embed())

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        diagonal = self._unbroadcasted_cov_diag
        along = self._unbroadcasted_cov_factor.mT / diagonal.unsqueeze(-2)
        part = evergrad.linalg.solve_triangular(self._capacitance_tril, along, upper=False)
        return self._for_batch(diagonal.reciprocal().diag_embed() - part.mT @ part)

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        columns = self.cov_factor.shape[-1:]
        along = standard_normal(shape[:-1] + columns, self.loc.dtype)
        around = standard_normal(shape, self.loc.dtype)
        return (
            self.loc
            + matrix_times_vector(self._unbroadcasted_cov_factor, along)
            + self._unbroadcasted_cov_diag.sqrt() * around
        )

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        distance = low_rank_distance(
            self._unbroadcasted_cov_factor,
            self._unbroadcasted_cov_diag,
            value - self.loc,
            self._capacitance_tril,
        )
        return -0.5 * (self._event_shape[0] * LOG_2PI + self._log_det + distance)

    @property
    def _log_det(self) -> Tensor:
        return low_rank_log_det(self._unbroadcasted_cov_diag, self._capacitance_tril)

    def entropy(self) -> Tensor:
        entropy = 0.5 * (self._event_shape[0] * (1.0 + LOG_2PI) + self._log_det)
        return entropy.expand(self._batch_shape)


def _check_shapes(loc: Tensor, cov_factor: Tensor, cov_diag: Tensor) -> None:
    if loc.ndim < 1:
        raise ValueError("loc must be at least one-dimensional.")
    size = loc.shape[-1:]
    if cov_factor.ndim < 2:
        raise ValueError(
            "cov_factor must be at least two-dimensional, with optional leading batch dimensions"
        )
    if cov_factor.shape[-2:-1] != size:
        raise ValueError(f"cov_factor must be a batch of matrices with shape {size[0]} x m")
    if cov_diag.shape[-1:] != size:
        raise ValueError(f"cov_diag must be a batch of vectors with shape {size}")
