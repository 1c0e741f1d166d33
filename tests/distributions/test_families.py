"""Every distribution against PyTorch's: draws, densities, moments, slopes and forms."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import pytest

from twins import agree, quietly

from .family_cases import FAMILIES

every_family = pytest.mark.parametrize("name", FAMILIES)
DIFFERENTIABLE = [
    "Beta", "Cauchy", "Chi2", "ContinuousBernoulli", "Dirichlet", "Exponential", "FisherSnedecor",
    "Gamma", "GeneralizedPareto", "Gumbel", "HalfCauchy", "HalfNormal", "Independent",
    "InverseGamma", "Kumaraswamy", "Laplace", "LogNormal", "LogisticNormal",
    "LowRankMultivariateNormal", "MultivariateNormal", "MultivariateNormal-precision",
    "MultivariateNormal-tril", "Normal", "OneHotCategoricalStraightThrough", "Pareto",
    "RelaxedBernoulli", "RelaxedOneHotCategorical", "StudentT", "TransformedDistribution",
    "TransformedDistribution-reshaped", "Uniform", "Weibull",
]  # fmt: skip


def attempt(call: Callable[[], Any]) -> Any:
    """What a call gives, or the name of the error it raises."""
    try:
        return call()
    except (NotImplementedError, ValueError) as error:
        return type(error).__name__


def gradients(ns: Any, result: Any, leaves: list[Any]) -> Any:
    """By each leaf, of the result weighed with different numbers; zeros where there is none."""
    if not getattr(result, "requires_grad", False):
        return None
    weights = ns.arange(1, result.numel() + 1, dtype=ns.float64).reshape(result.shape)
    total = (result * weights.cos()).sum()
    found = ns.autograd.grad(total, leaves, retain_graph=True, allow_unused=True)
    return [ns.zeros(1) if g is None else g for g in found]


@every_family
def test_forms(torch: ModuleType, name: str) -> None:
    def program(ns: Any) -> Any:
        made, _ = FAMILIES[name].build(ns)
        words = " ".join(f"{made!r} {made.support!r}".replace("evergrad", "torch").split())
        facts = made.has_rsample, made.has_enumerate_support, made.support.event_dim
        return tuple(made.batch_shape), tuple(made.event_shape), words, facts

    agree(program, torch)


@every_family
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_draws(torch: ModuleType, name: str, dtype: str) -> None:
    def program(ns: Any) -> Any:
        made, _ = FAMILIES[name].build(ns, dtype)
        ns.manual_seed(7)
        drawn = [made.sample(), made.sample((2, 3)), made.sample(ns.Size([17]))]
        if made.has_rsample:
            drawn.append(made.rsample([2]))
        assert not drawn[0].requires_grad
        return [(str(d.dtype).split(".")[1], d, made.support.check(d)) for d in drawn], ns.rand(3)

    agree(program, torch, 1e-12 if dtype == "float64" else 2e-5)


@every_family
def test_moments(torch: ModuleType, name: str) -> None:
    def program(ns: Any) -> Any:
        made, leaves = FAMILIES[name].build(ns)
        moments = ("mean", "mode", "variance", "stddev")
        results = [attempt(partial(getattr, made, moment)) for moment in moments]
        results += [attempt(made.entropy), attempt(made.perplexity)]
        return [
            result if isinstance(result, str) else (result, gradients(ns, result, leaves))
            for result in results
        ]

    agree(program, torch, FAMILIES[name].tolerance)


@every_family
def test_densities(torch: ModuleType, name: str) -> None:
    family = FAMILIES[name]
    torch.manual_seed(3)
    drawn = quietly(lambda ns: family.build(ns)[0].sample((4,)).tolist(), torch)

    def program(ns: Any) -> Any:
        made, leaves = family.build(ns)
        value = ns.tensor(drawn, dtype=leaves[0].dtype)
        if made.support.is_discrete:
            density = made.log_prob(value)
            return density, gradients(ns, density, leaves)
        value.requires_grad_()
        density = made.log_prob(value)
        below = attempt(lambda: made.cdf(value))
        return (
            (density, gradients(ns, density, [*leaves, value])),
            below if isinstance(below, str) else (below, gradients(ns, below, [value])),
        )

    agree(program, torch, family.tolerance)


@every_family
def test_quantiles(torch: ModuleType, name: str) -> None:
    def program(ns: Any) -> Any:
        made, leaves = FAMILIES[name].build(ns)
        levels = ns.tensor([0.1, 0.5, 0.9], dtype=leaves[0].dtype)
        levels = levels.reshape(3, *[1] * len(made.batch_shape)).requires_grad_()
        result = attempt(lambda: made.icdf(levels))
        return result if isinstance(result, str) else (result, gradients(ns, result, leaves))

    agree(program, torch, FAMILIES[name].tolerance)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_slopes_of_draws(torch: ModuleType, name: str) -> None:
    def program(ns: Any) -> Any:
        made, leaves = FAMILIES[name].build(ns)
        ns.manual_seed(11)
        drawn = made.rsample((3,))
        assert drawn.requires_grad
        return gradients(ns, drawn, leaves)

    agree(program, torch, FAMILIES[name].slope)


def test_every_differentiable_family_is_checked(torch: ModuleType) -> None:
    having = [name for name, family in FAMILIES.items() if family.build(torch)[0].has_rsample]
    others = ["ContinuousBernoulli-logits", "Wishart"]  # PyTorch's Wishart fails in backward
    assert sorted(having) == sorted([*DIFFERENTIABLE, *others])


@every_family
def test_expanding(torch: ModuleType, name: str) -> None:
    family = FAMILIES[name]

    def program(ns: Any) -> Any:
        made, _ = family.build(ns)
        larger = made.expand((4, *made.batch_shape))
        assert type(larger) is type(made)
        ns.manual_seed(5)
        drawn = larger.sample((2,))
        twice = larger.expand((3, *larger.batch_shape))
        return [
            tuple(larger.batch_shape), tuple(larger.event_shape), drawn, larger.log_prob(drawn),
            attempt(lambda: larger.mean), attempt(lambda: larger.variance),
            tuple(twice.sample().shape),
            repr(larger).replace("evergrad", "torch"),
        ]  # fmt: skip

    agree(program, torch, family.tolerance)


@pytest.mark.parametrize(
    "name", ["Bernoulli", "Binomial", "Categorical", "OneHotCategorical", "Binomial-logits"]
)
def test_all_values(torch: ModuleType, name: str) -> None:
    def program(ns: Any) -> Any:
        made, _ = FAMILIES[name].build(ns)
        each = made.enumerate_support()
        return each, made.enumerate_support(expand=False), made.log_prob(each).exp().sum(0)

    agree(program, torch)


@every_family
def test_validation_can_be_turned_off(torch: ModuleType, name: str) -> None:
    def program(ns: Any) -> Any:
        made, _ = FAMILIES[name].build(ns, validate_args=False)
        ns.manual_seed(2)
        return made.log_prob(made.sample())

    agree(program, torch, FAMILIES[name].tolerance)
