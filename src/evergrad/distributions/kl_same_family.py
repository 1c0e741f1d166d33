"""Divergences within a family."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Any

import evergrad
from evergrad.core.tensor import Tensor
from evergrad.distributions.bernoulli import Bernoulli
from evergrad.distributions.beta import Beta
from evergrad.distributions.binomial import Binomial
from evergrad.distributions.categorical import Categorical
from evergrad.distributions.cauchy import Cauchy
from evergrad.distributions.continuous_bernoulli import ContinuousBernoulli
from evergrad.distributions.dirichlet import Dirichlet
from evergrad.distributions.exp_family import ExponentialFamily, normalizer_slopes
from evergrad.distributions.exponential import Exponential
from evergrad.distributions.gamma import Gamma
from evergrad.distributions.geometric import Geometric
from evergrad.distributions.gumbel import Gumbel
from evergrad.distributions.half_normal import HalfNormal
from evergrad.distributions.independent import Independent
from evergrad.distributions.kl_registry import kl_divergence, register_kl
from evergrad.distributions.laplace import Laplace
from evergrad.distributions.lowrank_multivariate_normal import (
    LowRankMultivariateNormal,
    low_rank_distance,
)
from evergrad.distributions.multivariate_normal import (
    MultivariateNormal,
    log_diagonal_sum,
    squared_distance,
)
from evergrad.distributions.normal import Normal
from evergrad.distributions.one_hot_categorical import OneHotCategorical
from evergrad.distributions.pareto import Pareto
from evergrad.distributions.poisson import Poisson
from evergrad.distributions.transformed_distribution import TransformedDistribution
from evergrad.distributions.uniform import Uniform
from evergrad.distributions.utils import EULER_CONSTANT, sum_rightmost
from evergrad.nn.functional import softplus
from evergrad.ops.rows.check import require

_digamma, _lgamma, _where, _inf = evergrad.digamma, evergrad.lgamma, evergrad.where, evergrad.inf


# -- coins and categories -----------------------------------------------------------------------


def _weighed(weight: Tensor, log_ratio: Tensor, other: Tensor) -> Tensor:
    """What an outcome adds: nothing if it cannot occur, infinity if only ``other`` excludes it."""
    term = _where(other == 0, _inf, weight * log_ratio)
    return _where(weight == 0, 0, term)


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    hits = _weighed(p.probs, softplus(-q.logits) - softplus(-p.logits), q.probs)
    misses = _weighed(1 - p.probs, softplus(q.logits) - softplus(p.logits), 1 - q.probs)
    return hits + misses


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Tensor:
    require(
        ~(p.total_count < q.total_count), NotImplementedError,
        lambda: "KL between Binomials where q.total_count > p.total_count is not implemented",
    )  # fmt: skip
    once = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return _where(p.total_count > q.total_count, _inf, p.total_count * once)


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Tensor:
    return _weighed(p.probs, p.logits - q.logits, q.probs).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot_categorical(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return kl_divergence(p._categorical, q._categorical)


@register_kl(Geometric, Geometric)
def _geometric(p: Geometric, q: Geometric) -> Tensor:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: ContinuousBernoulli, q: ContinuousBernoulli) -> Tensor:
    own = p._cont_bern_log_norm() + (-p.probs).log1p()
    other = q._cont_bern_log_norm() + (-q.probs).log1p()
    return p.mean * (p.logits - q.logits) + own - other


# -- gamma and its relatives --------------------------------------------------------------------


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Tensor:
    return kl_divergence(p._dirichlet, q._dirichlet)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    total_p, total_q = p.concentration.sum(-1), q.concentration.sum(-1)
    normalizers = _lgamma(total_p) - _lgamma(total_q)
    normalizers = normalizers - (_lgamma(p.concentration) - _lgamma(q.concentration)).sum(-1)
    log_means = _digamma(p.concentration) - _digamma(total_p).unsqueeze(-1)
    return normalizers + ((p.concentration - q.concentration) * log_means).sum(-1)


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Tensor:
    return (
        q.concentration * (p.rate / q.rate).log()
        + _lgamma(q.concentration)
        - _lgamma(p.concentration)
        + (p.concentration - q.concentration) * _digamma(p.concentration)
        + (q.rate - p.rate) * (p.concentration / p.rate)
    )


@register_kl(Pareto, Pareto)
def _pareto(p: Pareto, q: Pareto) -> Tensor:
    ratio = q.alpha / p.alpha
    result = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return _where(p.scale < q.scale, _inf, result)


# -- location and scale -------------------------------------------------------------------------


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale).pow(2)
    distance = ((p.loc - q.loc) / q.scale).pow(2)
    return 0.5 * (ratio + distance - 1 - ratio.log())


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: HalfNormal, q: HalfNormal) -> Tensor:
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    ratio = p.scale / q.scale
    distance = (p.loc - q.loc).abs()
    return distance / q.scale + ratio * (-distance / p.scale).exp() - ratio.log() - 1


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    apart = (p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)
    return apart.log() - (4 * p.scale * q.scale).log()


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Gumbel, q: Gumbel) -> Tensor:
    ratio = p.scale / q.scale
    distance = (p.loc - q.loc) / q.scale
    tail = (_lgamma(1 + ratio) - distance).exp()
    return distance - ratio.log() + ratio * EULER_CONSTANT + tail - (1 + EULER_CONSTANT)


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    result = ((q.high - q.low) / (p.high - p.low)).log()
    return _where((q.low > p.low) | (q.high < p.high), _inf, result)


# -- vectors ------------------------------------------------------------------------------------


def _check_events(p: Any, q: MultivariateNormal | LowRankMultivariateNormal, what: str) -> None:
    if p.event_shape != q.event_shape:
        raise ValueError(
            f"KL-divergence between two {what} with different event shapes cannot be computed"
        )


_LOW_RANK = "Low Rank Multivariate Normals"


def _inverse_times(factor: Tensor, columns: Tensor) -> Tensor:
    """The sum of squares of ``inv(factor) @ columns``, for each batch."""
    batch = evergrad.broadcast_shapes(factor.shape[:-2], columns.shape[:-2])
    columns = columns.expand((*batch, *columns.shape[-2:]))
    solved = evergrad.linalg.solve_triangular(factor, columns, upper=False)
    return solved.square().sum((-2, -1))


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate_normal(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    _check_events(p, q, "Multivariate Normals")
    own, other = p._unbroadcasted_scale_tril, q._unbroadcasted_scale_tril
    trace = _inverse_times(other, own)
    distance = squared_distance(other, q.loc - p.loc)
    half_log_ratio = log_diagonal_sum(other) - log_diagonal_sum(own)
    return half_log_ratio + 0.5 * (trace + distance - p.event_shape[0])


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _to_low_rank(p: Any, q: LowRankMultivariateNormal) -> Tensor:
    _check_events(p, q, _LOW_RANK)
    factor, diagonal = q._unbroadcasted_cov_factor, q._unbroadcasted_cov_diag
    distance = low_rank_distance(factor, diagonal, q.loc - p.loc, q._capacitance_tril)
    # The trace of inv(q's covariance) @ p's covariance, by Woodbury's formula.
    along = factor.mT / diagonal.unsqueeze(-2)
    trace: Any = 0.0
    for columns in _factors_of_covariance(p):
        trace = trace + (columns.square() / diagonal.unsqueeze(-1)).sum((-2, -1))
        trace = trace - _inverse_times(q._capacitance_tril, along @ columns)
    return 0.5 * (q._log_det - _log_det(p) + trace + distance - p.event_shape[0])


@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _from_low_rank(p: LowRankMultivariateNormal, q: MultivariateNormal) -> Tensor:
    _check_events(p, q, f"(Low Rank) {_LOW_RANK[9:]}")
    factor = q._unbroadcasted_scale_tril
    distance = squared_distance(factor, q.loc - p.loc)
    trace = sum(_inverse_times(factor, columns) for columns in _factors_of_covariance(p))
    return 0.5 * (_log_det(q) - p._log_det + trace + distance - p.event_shape[0])


def _factors_of_covariance(p: Any) -> list[Tensor]:
    """Matrices whose products with their transposes add up to the covariance."""
    if isinstance(p, MultivariateNormal):
        return [p._unbroadcasted_scale_tril]
    return [p._unbroadcasted_cov_factor, p._unbroadcasted_cov_diag.sqrt().diag_embed()]


def _log_det(p: Any) -> Tensor:
    if isinstance(p, MultivariateNormal):
        return 2 * log_diagonal_sum(p._unbroadcasted_scale_tril)
    return p._log_det


# -- whatever the family ------------------------------------------------------------------------


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_family(p: ExponentialFamily, q: ExponentialFamily) -> Tensor:
    if type(p) is not type(q):
        raise NotImplementedError(
            "The cross KL-divergence between different exponential families cannot be computed "
            "using Bregman divergences"
        )
    own, normalizer, slopes = normalizer_slopes(p)
    result = q._log_normalizer(*q._natural_params) - normalizer
    for theirs, ours, slope in zip(q._natural_params, own, slopes, strict=True):
        depth = ours.ndim - len(p.batch_shape)
        result = result - sum_rightmost((theirs - ours) * slope, depth)
    return result


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError
    result = kl_divergence(p.base_dist, q.base_dist)
    return sum_rightmost(result, p.reinterpreted_batch_ndims)
