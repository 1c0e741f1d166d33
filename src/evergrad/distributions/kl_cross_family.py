"""Divergences between families.

Most are ``-H(p) - E_p[log q]``: the entropy of p, and the mean under p of a log-density that is
linear in a few functions of the value (the value, its square, its logarithm, an exponential), of
which p knows the mean.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Any

import evergrad
from evergrad.core.tensor import Tensor
from evergrad.distributions.bernoulli import Bernoulli
from evergrad.distributions.beta import Beta
from evergrad.distributions.binomial import Binomial
from evergrad.distributions.continuous_bernoulli import ContinuousBernoulli
from evergrad.distributions.distribution import Distribution
from evergrad.distributions.exponential import Exponential
from evergrad.distributions.gamma import Gamma
from evergrad.distributions.gumbel import Gumbel
from evergrad.distributions.kl_registry import register_kl
from evergrad.distributions.laplace import Laplace
from evergrad.distributions.normal import Normal
from evergrad.distributions.pareto import Pareto
from evergrad.distributions.poisson import Poisson
from evergrad.distributions.uniform import Uniform
from evergrad.distributions.utils import EULER_CONSTANT, LOG_2PI

_digamma, _lgamma, _where, _inf = evergrad.digamma, evergrad.lgamma, evergrad.where, evergrad.inf


def _infinite(p: Distribution, q: Distribution) -> Tensor:
    """p draws what q cannot."""
    return evergrad.full_like(p.mean, _inf)


_OUTSIDE: dict[type[Distribution], tuple[type[Distribution], ...]] = {
    Beta: (Pareto,),
    ContinuousBernoulli: (Pareto,),
    Exponential: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gamma: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gumbel: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Laplace: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Normal: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Pareto: (Beta, ContinuousBernoulli, Uniform),
    Poisson: (Bernoulli, Binomial),
}
for _p, _narrower in _OUTSIDE.items():
    for _q in _narrower:
        register_kl(_p, _q)(_infinite)


# -- means of functions of draws ----------------------------------------------------------------


def _log_mean(p: Any) -> Tensor:
    """The mean of the logarithm of draws."""
    if isinstance(p, Beta):
        return _digamma(p.concentration1) - _digamma(p.concentration1 + p.concentration0)
    if isinstance(p, Exponential):
        return -p.rate.log() - EULER_CONSTANT
    if isinstance(p, Pareto):
        return p.scale.log() + p.alpha.reciprocal()
    return (_xlogx(p.high) - _xlogx(p.low)) / (p.high - p.low) - 1


def _xlogx(x: Tensor) -> Tensor:
    return x * x.log()


def _exp_mean(p: Any, scale: Tensor) -> Tensor:
    """The mean of ``exp(-draw / scale)``."""
    if isinstance(p, Exponential):
        return p.rate / (p.rate + scale.reciprocal())
    if isinstance(p, Gamma):
        return (1 + (p.rate * scale).reciprocal()).pow(-p.concentration)
    if isinstance(p, Normal):
        return (0.5 * (p.scale / scale).pow(2) - p.loc / scale).exp()
    ends = (-p.high / scale).exp() - (-p.low / scale).exp()
    return -ends * scale / (p.high - p.low)


# -- to one family ------------------------------------------------------------------------------


@register_kl(Beta, Normal)
@register_kl(ContinuousBernoulli, Normal)
@register_kl(Exponential, Normal)
@register_kl(Gamma, Normal)
@register_kl(Gumbel, Normal)
@register_kl(Laplace, Normal)
@register_kl(Pareto, Normal)
@register_kl(Uniform, Normal)
def _to_normal(p: Any, q: Normal) -> Tensor:
    distance = p.variance + (p.mean - q.loc).pow(2)
    result = -p.entropy() + 0.5 * LOG_2PI + q.scale.log() + 0.5 * distance / q.variance
    return _where(p.variance.isinf(), _inf, result)


@register_kl(Beta, Exponential)
@register_kl(ContinuousBernoulli, Exponential)
@register_kl(Gamma, Exponential)
@register_kl(Pareto, Exponential)
@register_kl(Uniform, Exponential)
def _to_exponential(p: Any, q: Exponential) -> Tensor:
    result = -p.entropy() - q.rate.log() + q.rate * p.mean
    return _where(_reaches_below_zero(p), _inf, result)


@register_kl(Beta, Gamma)
@register_kl(Exponential, Gamma)
@register_kl(Pareto, Gamma)
@register_kl(Uniform, Gamma)
def _to_gamma(p: Any, q: Gamma) -> Tensor:
    result = (
        -p.entropy()
        - q.concentration * q.rate.log()
        + _lgamma(q.concentration)
        - (q.concentration - 1) * _log_mean(p)
        + q.rate * p.mean
    )
    return _where(_reaches_below_zero(p), _inf, result)


def _reaches_below_zero(p: Any) -> Tensor:
    """Where p draws negative numbers, or has no finite mean, which is as bad."""
    return p.low < 0 if isinstance(p, Uniform) else p.mean.isinf()


@register_kl(Exponential, Gumbel)
@register_kl(Gamma, Gumbel)
@register_kl(Normal, Gumbel)
@register_kl(Uniform, Gumbel)
def _to_gumbel(p: Any, q: Gumbel) -> Tensor:
    tail = (q.loc / q.scale).exp() * _exp_mean(p, q.scale)
    return -p.entropy() + q.scale.log() + (p.mean - q.loc) / q.scale + tail


@register_kl(Beta, ContinuousBernoulli)
@register_kl(Uniform, ContinuousBernoulli)
def _to_continuous_bernoulli(p: Beta | Uniform, q: ContinuousBernoulli) -> Tensor:
    log_start = (-q.probs).log1p() + q._cont_bern_log_norm()
    result = -p.entropy() - p.mean * q.logits - log_start
    return _where((p.high > 1) | (p.low < 0), _inf, result) if isinstance(p, Uniform) else result


@register_kl(Beta, Uniform)
@register_kl(ContinuousBernoulli, Uniform)
def _unit_interval_to_uniform(p: Beta | ContinuousBernoulli, q: Uniform) -> Tensor:
    result = -p.entropy() + (q.high - q.low).log()
    if isinstance(p, ContinuousBernoulli):  # PyTorch wants the ends to lie outside
        return _where((q.high <= 1) | (q.low >= 0), _inf, result)
    return _where((q.high < 1) | (q.low > 0), _inf, result)


# -- single pairs -------------------------------------------------------------------------------


@register_kl(Bernoulli, Poisson)
def _bernoulli_to_poisson(p: Bernoulli, q: Poisson) -> Tensor:
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)


@register_kl(Normal, Laplace)
def _normal_to_laplace(p: Normal, q: Laplace) -> Tensor:
    offset = (p.loc - q.loc) / p.scale
    near = (2 / evergrad.pi) ** 0.5 * (-0.5 * offset.pow(2)).exp()
    distance = p.scale * (near + offset * evergrad.erf(0.5**0.5 * offset))
    return -p.entropy() + (2 * q.scale).log() + distance / q.scale


@register_kl(Uniform, Beta)
def _uniform_to_beta(p: Uniform, q: Beta) -> Tensor:
    log_beta = (
        _lgamma(q.concentration1)
        + _lgamma(q.concentration0)
        - _lgamma(q.concentration1 + q.concentration0)
    )
    mirrored = Uniform(1 - p.high, 1 - p.low, validate_args=False)
    result = (
        -p.entropy()
        - (q.concentration1 - 1) * _log_mean(p)
        - (q.concentration0 - 1) * _log_mean(mirrored)
        + log_beta
    )
    return _where((p.high > 1) | (p.low < 0), _inf, result)


@register_kl(Uniform, Pareto)
def _uniform_to_pareto(p: Uniform, q: Pareto) -> Tensor:
    log_density = q.alpha.log() + q.alpha * q.scale.log() - (q.alpha + 1) * _log_mean(p)
    return _where(p.low < q.scale, _inf, -p.entropy() - log_density)
