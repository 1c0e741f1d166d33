"""What is refused: the errors are PyTorch's, in class and in words."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import evergrad
from evergrad.distributions import Distribution, Normal

CALLS: list[Callable[[Any], Any]] = [
    # parameters
    lambda ns: ns.distributions.Normal(ns.tensor([0.0, 1.0]), ns.tensor([1.0, -1.0])),
    lambda ns: ns.distributions.Normal(ns.tensor([float("nan")]), 1.0),
    lambda ns: ns.distributions.Normal(0.0, 1.0).log_prob(1.0),
    lambda ns: ns.distributions.Normal(0.0, 1.0).log_prob(ns.tensor(float("nan"))),
    lambda ns: ns.distributions.Normal(ns.zeros(2), 1.0).log_prob(ns.zeros(3)),
    lambda ns: ns.distributions.Bernoulli(),
    lambda ns: ns.distributions.Bernoulli(0.3, 0.3),
    lambda ns: ns.distributions.Bernoulli(2.0),
    lambda ns: ns.distributions.Bernoulli(0.3).log_prob(ns.tensor(0.5)),
    lambda ns: ns.distributions.Bernoulli(0.3).rsample(),
    lambda ns: ns.distributions.Bernoulli(0.3).cdf(ns.tensor(1.0)),
    lambda ns: ns.distributions.Bernoulli(0.3).icdf(ns.tensor(1.0)),
    lambda ns: ns.distributions.Binomial(ns.tensor([1.5]), ns.tensor([0.5])),
    lambda ns: ns.distributions.Binomial(3),
    lambda ns: ns.distributions.Binomial(ns.tensor([3.0, 4.0]), ns.ones(2)).enumerate_support(),
    lambda ns: ns.distributions.Binomial(3, ns.tensor(0.5)).log_prob(ns.tensor(4.0)),
    lambda ns: ns.distributions.Categorical(),
    lambda ns: ns.distributions.Categorical(ns.tensor(0.5)),
    lambda ns: ns.distributions.Categorical(logits=ns.tensor(0.5)),
    lambda ns: ns.distributions.Categorical(ns.tensor([0.5, -0.5])),
    lambda ns: ns.distributions.Categorical(ns.ones(2)).log_prob(ns.tensor(2)),
    lambda ns: ns.distributions.OneHotCategorical(ns.ones(2)).log_prob(ns.ones(2)),
    lambda ns: ns.distributions.OneHotCategorical(ns.ones(2)).log_prob(ns.ones(3)),
    lambda ns: ns.distributions.Multinomial(ns.tensor(3), ns.ones(2)),
    lambda ns: ns.distributions.Multinomial(3, ns.ones(2)).log_prob(ns.tensor([4.0, 1.0])),
    lambda ns: ns.distributions.Uniform(1.0, 0.0),
    lambda ns: ns.distributions.Uniform(ns.tensor([0.0, 1.0]), ns.ones(2)),
    lambda ns: ns.distributions.Uniform(0.0, 1.0).log_prob(ns.tensor(2.0)),
    lambda ns: ns.distributions.Dirichlet(ns.tensor(1.0)),
    lambda ns: ns.distributions.Dirichlet(ns.tensor([1.0, -1.0])),
    lambda ns: ns.distributions.Dirichlet(ns.ones(2)).log_prob(ns.tensor([0.5, 0.6])),
    lambda ns: ns.distributions.Poisson(-1.0),
    lambda ns: ns.distributions.Poisson(1.0).log_prob(ns.tensor(0.5)),
    lambda ns: ns.distributions.Poisson(1.0).entropy(),
    lambda ns: ns.distributions.Geometric(0.0),
    lambda ns: ns.distributions.Geometric(ns.tensor([0.5, 0.0])),
    lambda ns: ns.distributions.Geometric(1.5),
    lambda ns: ns.distributions.NegativeBinomial(3.0, ns.tensor(1.0)),
    lambda ns: ns.distributions.Gamma(1.0, 0.0),
    lambda ns: ns.distributions.Beta(1.0, 0.0),
    lambda ns: ns.distributions.Chi2(-1.0),
    lambda ns: ns.distributions.StudentT(-1.0),
    lambda ns: ns.distributions.FisherSnedecor(-1.0, 1.0),
    lambda ns: ns.distributions.VonMises(ns.tensor(0.0), ns.tensor(-1.0)),
    lambda ns: ns.distributions.ContinuousBernoulli(),
    lambda ns: ns.distributions.ContinuousBernoulli(3.0, validate_args=True),
    lambda ns: ns.distributions.RelaxedBernoulli(ns.tensor(1.0)),
    lambda ns: ns.distributions.LogNormal(0.0, -1.0),
    lambda ns: ns.distributions.Weibull(0.0, 1.0),
    lambda ns: ns.distributions.Pareto(1.0, 1.0).log_prob(ns.tensor(0.5)),
    lambda ns: ns.distributions.Gumbel(0.0, 0.0),
    lambda ns: ns.distributions.Kumaraswamy(0.0, 1.0),
    lambda ns: ns.distributions.HalfNormal(-1.0),
    lambda ns: ns.distributions.HalfCauchy(1.0).log_prob(ns.tensor(-1.0)),
    lambda ns: ns.distributions.InverseGamma(0.0, 1.0),
    lambda ns: ns.distributions.GeneralizedPareto(0.0, 1.0, 1.0).log_prob(ns.tensor(-1.0)),
    lambda ns: ns.distributions.LKJCholesky(1),
    lambda ns: ns.distributions.LKJCholesky(3, -1.0),
    lambda ns: ns.distributions.LKJCholesky(3).log_prob(ns.ones(3, 3)),
    # matrices
    lambda ns: ns.distributions.MultivariateNormal(ns.zeros(2)),
    lambda ns: ns.distributions.MultivariateNormal(ns.tensor(0.0), ns.eye(2)),
    lambda ns: ns.distributions.MultivariateNormal(ns.zeros(2), ns.zeros(2)),
    lambda ns: ns.distributions.MultivariateNormal(ns.zeros(2), scale_tril=ns.zeros(2)),
    lambda ns: ns.distributions.MultivariateNormal(ns.zeros(2), -ns.eye(2)),
    lambda ns: ns.distributions.MultivariateNormal(ns.zeros(2), ns.eye(2), ns.eye(2)),
    lambda ns: ns.distributions.MultivariateNormal(ns.zeros(2), ns.eye(2)).log_prob(ns.zeros(3)),
    lambda ns: ns.distributions.LowRankMultivariateNormal(
        ns.tensor(0.0), ns.ones(2, 1), ns.ones(2)
    ),
    lambda ns: ns.distributions.LowRankMultivariateNormal(ns.zeros(2), ns.ones(2), ns.ones(2)),
    lambda ns: ns.distributions.LowRankMultivariateNormal(ns.zeros(2), ns.ones(3, 1), ns.ones(2)),
    lambda ns: ns.distributions.LowRankMultivariateNormal(ns.zeros(2), ns.ones(2, 1), ns.ones(3)),
    lambda ns: ns.distributions.LowRankMultivariateNormal(
        ns.zeros(3, 2), ns.ones(4, 2, 1), ns.ones(2)
    ),
    lambda ns: ns.distributions.Wishart(1.0, ns.eye(2)),
    lambda ns: ns.distributions.Wishart(3.0),
    lambda ns: ns.distributions.Wishart(3.0, ns.zeros(2)),
    # composites
    lambda ns: ns.distributions.MixtureSameFamily(1, ns.distributions.Normal(ns.zeros(2), 1.0)),
    lambda ns: ns.distributions.MixtureSameFamily(ns.distributions.Categorical(ns.ones(2)), 1),
    lambda ns: ns.distributions.MixtureSameFamily(
        ns.distributions.Categorical(ns.ones(3)), ns.distributions.Normal(ns.zeros(2), 1.0)
    ),
    lambda ns: ns.distributions.MixtureSameFamily(
        ns.distributions.Categorical(ns.ones(3, 2)), ns.distributions.Normal(ns.zeros(4, 2), 1.0)
    ),
    lambda ns: ns.distributions.Independent(ns.distributions.Normal(0.0, 1.0), 1),
    lambda ns: ns.distributions.Independent(
        ns.distributions.Bernoulli(ns.ones(2)), 1
    ).enumerate_support(),
    lambda ns: ns.distributions.TransformedDistribution(ns.distributions.Normal(0.0, 1.0), 1),
    lambda ns: ns.distributions.TransformedDistribution(ns.distributions.Normal(0.0, 1.0), [1]),
    lambda ns: ns.distributions.TransformedDistribution(
        ns.distributions.Normal(0.0, 1.0), ns.distributions.SoftmaxTransform()
    ),
    lambda ns: ns.distributions.TransformedDistribution(
        ns.distributions.Normal(0.0, 1.0), ns.distributions.AbsTransform()
    ).log_prob(ns.tensor(1.0)),
    lambda ns: ns.distributions.LogNormal(0.0, 1.0).log_prob(ns.tensor(-1.0)),
    # the base
    lambda ns: ns.distributions.Distribution(validate_args=False).mean,
    lambda ns: ns.distributions.Distribution(validate_args=False).variance,
    lambda ns: ns.distributions.Distribution(validate_args=False).support,
    lambda ns: ns.distributions.Distribution(validate_args=False).sample(),
    lambda ns: ns.distributions.Distribution(validate_args=False).expand((2,)),
    lambda ns: ns.distributions.Distribution(validate_args=False).enumerate_support(),
    lambda ns: ns.distributions.Distribution.set_default_validate_args(3),
    lambda ns: ns.distributions.Normal(0.0, 1.0).sample(3),
    lambda ns: ns.distributions.kl_divergence(
        ns.distributions.Normal(0.0, 1.0), ns.distributions.Cauchy(0.0, 1.0)
    ),
    lambda ns: ns.distributions.kl_divergence(
        ns.distributions.Binomial(2, ns.tensor(0.5)), ns.distributions.Binomial(3, ns.tensor(0.5))
    ),
    # constraints and transforms
    lambda ns: ns.distributions.constraints.Constraint().check(1),
    lambda ns: ns.distributions.constraints.dependent.check(1),
    lambda ns: ns.distributions.constraints.dependent.event_dim,
    lambda ns: ns.distributions.constraints.dependent.is_discrete,
    lambda ns: ns.distributions.constraints.independent(ns.distributions.constraints.real, -1),
    lambda ns: ns.distributions.constraints.independent(ns.distributions.constraints.real, 1.5),
    lambda ns: ns.distributions.constraints.independent(1, 1),
    lambda ns: ns.distributions.constraints.real_vector.check(ns.tensor(1.0)),
    lambda ns: ns.distributions.constraints.stack([1]),
    lambda ns: ns.distributions.constraints.MixtureSameFamilyConstraint(1),
    lambda ns: ns.distributions.biject_to(ns.distributions.constraints.lower_cholesky),
    lambda ns: ns.distributions.transform_to(1),
    lambda ns: ns.distributions.Transform(cache_size=2),
    lambda ns: ns.distributions.Transform()(ns.ones(1)),
    lambda ns: ns.distributions.Transform().inv(ns.ones(1)),
    lambda ns: ns.distributions.AbsTransform().sign,
    lambda ns: ns.distributions.AbsTransform().log_abs_det_jacobian(ns.ones(1), ns.ones(1)),
    lambda ns: ns.distributions.ReshapeTransform((2, 3), (5,)),
    lambda ns: ns.distributions.ReshapeTransform((2, 3), (6,)).forward_shape((2,)),
    lambda ns: ns.distributions.ReshapeTransform((2, 3), (6,)).forward_shape((3, 2)),
    lambda ns: ns.distributions.SoftmaxTransform().forward_shape(()),
    lambda ns: ns.distributions.StickBreakingTransform().inverse_shape(()),
    lambda ns: ns.distributions.ReshapeTransform((2, 3), (6,)).event_dim,
    lambda ns: ns.distributions.CorrCholeskyTransform().forward_shape((4,)),
    lambda ns: ns.distributions.CorrCholeskyTransform().inverse_shape((2, 3)),
    lambda ns: ns.distributions.IndependentTransform(ns.distributions.ExpTransform(), 1)(
        ns.tensor(1.0)
    ),
    lambda ns: ns.distributions.CatTransform([1]),
    lambda ns: ns.distributions.CatTransform([ns.distributions.ExpTransform()], lengths=[1, 2]),
    lambda ns: ns.distributions.CatTransform([ns.distributions.ExpTransform()])(ns.ones(3)),
    lambda ns: ns.distributions.StackTransform([ns.distributions.ExpTransform()])(ns.ones(3)),
    lambda ns: ns.distributions.StackTransform([ns.distributions.ExpTransform()])(ns.tensor(1.0)),
]


def refusal(call: Callable[[Any], Any], ns: Any) -> tuple[type, str]:
    with pytest.raises(Exception) as found:
        call(ns)
    words = str(found.value).replace("evergrad", "torch")
    return found.type, " ".join(words.split())


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_refusals(torch: ModuleType, number: int) -> None:
    assert refusal(CALLS[number], evergrad) == refusal(CALLS[number], torch)


def test_shapes_that_do_not_broadcast() -> None:
    with pytest.raises(RuntimeError, match="must match the size of tensor b"):
        Normal(evergrad.zeros(2), evergrad.ones(3))
    with pytest.raises(RuntimeError, match="expanded size of the tensor"):
        Normal(evergrad.zeros(2), 1.0).expand((3,))


class Bare(Distribution):
    """Says nothing about its parameters."""


class Own(Normal):
    """Has an ``__init__`` of its own, which ``expand`` cannot know."""

    def __init__(self, loc: Any) -> None:
        super().__init__(loc, 1.0)


class OwnExpanding(Own):
    """Tells how it is expanded."""

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return super().expand(batch_shape, _instance=self.__new__(OwnExpanding))


def test_what_subclasses_must_say() -> None:
    with (
        pytest.warns(UserWarning, match="does not define `arg_constraints`"),
        pytest.raises(NotImplementedError),
    ):
        repr(Bare())
    with pytest.warns(UserWarning, match="does not define `support`"):
        Bare(validate_args=False)._validate_sample(evergrad.ones(()))
    with pytest.raises(NotImplementedError, match="Subclass Own of Normal that defines a custom"):
        Own(0.0).expand((2,))
    expanded = OwnExpanding(0.0).expand((2,))
    assert type(expanded) is OwnExpanding and tuple(expanded.loc.shape) == (2,)


def test_validation_follows_the_default() -> None:
    Distribution.set_default_validate_args(False)
    try:
        assert Normal(0.0, -1.0).scale == -1
        with pytest.raises(ValueError, match="scale"):
            Normal(0.0, -1.0, validate_args=True)
    finally:
        Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError, match="scale"):
        Normal(0.0, -1.0)


def test_deprecated_form_warns() -> None:
    with pytest.warns(FutureWarning, match=r"Use `sample\(\(n,\)\)` instead"):
        assert tuple(Normal(0.0, 1.0).sample_n(3).shape) == (3,)


def test_few_degrees_of_freedom_are_told() -> None:
    with pytest.warns(UserWarning, match="Low df values detected"):
        evergrad.distributions.Wishart(1.5, evergrad.eye(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evergrad.distributions.Wishart(2.0, evergrad.eye(2)).sample()
