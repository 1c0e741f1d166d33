"""The Wishart distribution."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import warnings
from collections.abc import Iterable

import evergrad
from evergrad.core.shapes import Size
from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.core.tracing import is_known
from evergrad.distributions import constraints
from evergrad.distributions.chi2 import Chi2
from evergrad.distributions.constraints import Constraint
from evergrad.distributions.distribution import expandable, require_values
from evergrad.distributions.exp_family import ExponentialFamily
from evergrad.distributions.multivariate_normal import (
    CovarianceForms,
    log_diagonal_sum,
    scale_factor,
    the_one_given,
)
from evergrad.distributions.utils import LOG_2

__all__ = ["Wishart"]

_MOST_ATTEMPTS = 10


@expandable
class Wishart(CovarianceForms, ExponentialFamily):
    """Sums of ``df`` outer products of normal vectors. One of the three matrices is given.

    Args:
        df: the degrees of freedom, more than the matrix has rows less one.
        covariance_matrix: of the vectors, positive definite.
        precision_matrix: the inverse of the covariance.
        scale_tril: its lower factor with a positive diagonal.

    >>> d = eg.distributions.Wishart(eg.tensor(3.0), covariance_matrix=eg.eye(2))
    >>> d.mean, d.sample().shape
    (tensor([[3., 0.],
            [0., 3.]]), evergrad.Size([2, 2]))
    """

    support: Constraint = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(
        self,
        df: object,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        try:
            name, matrix = the_one_given(
                covariance_matrix=covariance_matrix,
                precision_matrix=precision_matrix,
                scale_tril=scale_tril,
            )
        except ValueError as error:
            raise AssertionError(str(error)) from None
        if matrix.ndim < 2:
            raise ValueError(
                "scale_tril must be at least two-dimensional, with optional leading batch "
                "dimensions"
            )
        batch = matrix.shape[:-2]
        if isinstance(df, Tensor):
            batch = Size(evergrad.broadcast_shapes(batch, df.shape))
            self.df: Tensor = df.expand(batch)
        else:
            self.df = evergrad.tensor(df, dtype=matrix.dtype)
        self._check_df(matrix.shape[-1])
        setattr(self, name, matrix.expand((*batch, -1, -1)))
        super().__init__(batch, matrix.shape[-2:], validate_args=validate_args)
        self._unbroadcasted_scale_tril = scale_factor(name, matrix)
        lost = evergrad.arange(matrix.shape[-1]).expand((*batch, -1))
        self._dist_chi2 = Chi2(self.df.unsqueeze(-1) - lost)

    def _check_df(self, size: int) -> None:
        require_values(
            ~(self.df <= size - 1),
            lambda: f"Value of df={self.df} expected to be greater than ndim - 1 = {size - 1}.",
        )
        if is_known(self.df) and (self.df < size).any():
            warnings.warn(
                "Low df values detected. Singular samples are highly likely to occur for ndim - 1 "
                "< df < ndim.",
                stacklevel=3,
            )

    @property
    def arg_constraints(self) -> dict[str, Constraint]:
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self.event_shape[-1] - 1),
        }

    @property
    def mean(self) -> Tensor:
        return _as_matrices(self.df) * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        factor = self.df - self._event_shape[-1] - 1
        factor = evergrad.where(factor <= 0, evergrad.nan, factor)
        return _as_matrices(factor) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        covariance = self.covariance_matrix
        diagonal = covariance.diagonal(dim1=-2, dim2=-1)
        outer = diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2)
        return _as_matrices(self.df) * (covariance.pow(2) + outer)

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        """Draw by Bartlett's decomposition; singular draws are drawn again."""
        sample_shape = Size(sample_shape)
        with using(grad=False):
            self._bartlett(sample_shape)  # PyTorch drops its first draw; so seeds mean the same
        drawn = self._bartlett(sample_shape)
        for _ in range(_MOST_ATTEMPTS):
            singular = ~self.support.check(drawn)
            if not singular.any():
                break
            warnings.warn("Singular sample detected.", stacklevel=2)
            drawn = evergrad.where(_as_matrices(singular), self._bartlett(sample_shape), drawn)
        return drawn

    def _bartlett(self, sample_shape: Size) -> Tensor:
        size = self._event_shape[-1]
        triangle = self._dist_chi2.rsample(sample_shape).sqrt().diag_embed(dim1=-2, dim2=-1)
        rows, columns = evergrad.tril_indices(size, size, offset=-1)
        below = (*sample_shape, *self._batch_shape, size * (size - 1) // 2)
        triangle[..., rows, columns] = evergrad.randn(below, dtype=triangle.dtype)
        factor = self._unbroadcasted_scale_tril @ triangle
        return factor @ factor.mT

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        size = self._event_shape[-1]
        ratio = evergrad.cholesky_solve(value, self._unbroadcasted_scale_tril)
        trace = ratio.diagonal(dim1=-2, dim2=-1).sum(-1)
        return (
            -self.df * self._half_log_volume
            - evergrad.mvlgamma(self.df / 2, p=size)
            + (self.df - size - 1) / 2 * evergrad.linalg.slogdet(value).logabsdet
            - trace / 2
        )

    @property
    def _half_log_volume(self) -> Tensor:
        """Half the logarithm of the determinant of twice the covariance."""
        return self._event_shape[-1] * LOG_2 / 2 + log_diagonal_sum(self._unbroadcasted_scale_tril)

    def entropy(self) -> Tensor:
        size = self._event_shape[-1]
        return (
            (size + 1) * self._half_log_volume
            + evergrad.mvlgamma(self.df / 2, p=size)
            - (self.df - size - 1) / 2 * _multivariate_digamma(self.df / 2, size)
            + self.df * size / 2
        )

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        size = x.shape[-1]
        half_df = y + (size + 1) / 2
        log_volume = size * LOG_2 - evergrad.linalg.slogdet(-2 * x).logabsdet
        return half_df * log_volume + evergrad.mvlgamma(half_df, p=size)


def _as_matrices(values: Tensor) -> Tensor:
    """Numbers that multiply matrices."""
    return values.unsqueeze(-1).unsqueeze(-1)


def _multivariate_digamma(x: Tensor, size: int) -> Tensor:
    """The slope of ``mvlgamma``."""
    shifts = evergrad.arange(size, dtype=x.dtype) / 2
    return evergrad.digamma(x.unsqueeze(-1) - shifts).sum(-1)
