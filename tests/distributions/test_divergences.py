"""``kl_divergence`` against PyTorch's for every registered pair, and how pairs are registered."""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import Any

import pytest

import evergrad
from evergrad.distributions import (
    Distribution,
    Exponential,
    Gamma,
    Laplace,
    Normal,
    kl_divergence,
    kl_registry,
    register_kl,
)
from evergrad.distributions.kl_registry import _KL_REGISTRY
from twins import agree, fixed

from .test_families import gradients

UNIT, WIDE = [0.2, 0.6, 0.9], [1.5, 0.7, 3.0]
MATRIX = [[2.0, 0.3, 0.1], [0.3, 1.5, -0.2], [0.1, -0.2, 1.0]]
FACTOR = [[0.5, 0.1], [-0.3, 0.7], [0.2, 0.4]]

# Two sets of parameters each.
PARAMETERS: dict[str, list[dict[str, Any]]] = {
    "Bernoulli": [{"probs": [0.2, 0.0, 1.0]}, {"probs": [0.3, 0.0, 0.4]}],
    "Beta": [
        {"concentration1": WIDE, "concentration0": UNIT},
        {"concentration1": UNIT, "concentration0": WIDE},
    ],
    "Binomial": [
        {"total_count": [5.0, 9.0, 4.0], "probs": UNIT},
        {"total_count": [5.0, 4.0, 4.0], "probs": [0.5, 0.5, 0.2]},
    ],
    "Categorical": [{"probs": [[0.2, 0.8, 0.0], [0.3, 0.3, 0.4]]}, {"probs": [0.0, 0.6, 0.4]}],
    "Cauchy": [{"loc": UNIT, "scale": WIDE}, {"loc": WIDE, "scale": UNIT}],
    "ContinuousBernoulli": [{"probs": UNIT}, {"logits": WIDE}],
    "Dirichlet": [{"concentration": [WIDE, UNIT]}, {"concentration": UNIT}],
    "Exponential": [{"rate": WIDE}, {"rate": UNIT}],
    "Gamma": [{"concentration": WIDE, "rate": UNIT}, {"concentration": UNIT, "rate": WIDE}],
    "Geometric": [{"probs": UNIT}, {"probs": [0.5, 0.3, 0.1]}],
    "Gumbel": [{"loc": UNIT, "scale": WIDE}, {"loc": WIDE, "scale": UNIT}],
    "HalfNormal": [{"scale": WIDE}, {"scale": UNIT}],
    "Laplace": [{"loc": UNIT, "scale": WIDE}, {"loc": WIDE, "scale": UNIT}],
    "LowRankMultivariateNormal": [
        {"loc": [UNIT, WIDE], "cov_factor": FACTOR, "cov_diag": UNIT},
        {"loc": WIDE, "cov_factor": FACTOR, "cov_diag": WIDE},
    ],
    "MultivariateNormal": [
        {"loc": UNIT, "covariance_matrix": MATRIX},
        {"loc": WIDE, "precision_matrix": [MATRIX, MATRIX]},
    ],
    "Normal": [{"loc": UNIT, "scale": WIDE}, {"loc": WIDE, "scale": UNIT}],
    "OneHotCategorical": [{"probs": [UNIT, WIDE]}, {"logits": WIDE}],
    "Pareto": [{"scale": WIDE, "alpha": [0.5, 1.5, 4.0]}, {"scale": UNIT, "alpha": WIDE}],
    "Poisson": [{"rate": WIDE}, {"rate": UNIT}],
    "Uniform": [
        {"low": [0.1, -0.5, 2.0], "high": [0.9, 0.5, 4.0]},
        {"low": [0.0, -1.0, -0.1], "high": [1.0, 2.0, 1.5]},
    ],
}
# Within the support of all others: beside it PyTorch's slopes are nan where they should be 0.
INSIDE = {"low": [0.3, 0.7, 0.92], "high": [0.4, 0.8, 0.95]}


def build(ns: Any, name: str, given: dict[str, Any]) -> tuple[Any, list[Any]]:
    leaves = {key: fixed(ns, values).requires_grad_() for key, values in given.items()}
    return getattr(ns.distributions, name)(**leaves), list(leaves.values())


def divergence(ns: Any, p: str, q: str, given: dict[str, Any]) -> tuple[Any, list[Any]]:
    """The divergence of two distributions, and all leaves."""
    one, leaves = build(ns, p, given)
    other, more = build(ns, q, PARAMETERS[q][1])
    return ns.distributions.kl_divergence(one, other), [*leaves, *more]


PAIRS = sorted(
    {
        (p.__name__, q.__name__)
        for p, q in _KL_REGISTRY
        if p.__name__ in PARAMETERS and q.__name__ in PARAMETERS
    }
)


@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_pairs(torch: ModuleType, p: str, q: str) -> None:
    agree(lambda ns: divergence(ns, p, q, PARAMETERS[p][0])[0], torch)


@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_slopes(torch: ModuleType, p: str, q: str) -> None:
    given = INSIDE if p == "Uniform" else PARAMETERS[p][0]
    agree(lambda ns: gradients(ns, *divergence(ns, p, q, given)), torch)


def test_the_same_pairs_are_registered(torch: ModuleType) -> None:
    from torch.distributions import kl

    ours = {(p.__name__, q.__name__) for p, q in _KL_REGISTRY}
    assert ours == {(p.__name__, q.__name__) for p, q in kl._KL_REGISTRY}
    general = {"ExponentialFamily", "TransformedDistribution", "Independent"}
    assert {p for pair in ours for p in pair} == general | set(PARAMETERS)


def test_general_pairs(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        d = ns.distributions
        loc, scale = fixed(ns, [UNIT, WIDE]), fixed(ns, WIDE)
        one, two = d.Normal(loc, scale), d.Normal(scale, 2.0)
        by_normalizers = d.kl._KL_REGISTRY[d.ExponentialFamily, d.ExponentialFamily]
        families = [
            (d.Gamma(scale, 2.0), d.Gamma(1.5, scale)),
            (d.Normal(loc, scale), d.Normal(scale, scale)),
            (d.Dirichlet(scale), d.Dirichlet(scale + 1)),
            (d.Beta(scale, 2.0), d.Beta(1.5, scale)),
            (d.Bernoulli(fixed(ns, UNIT)), d.Bernoulli(logits=scale)),
            (d.Poisson(scale), d.Poisson(scale + 1)),
        ]
        return [
            d.kl_divergence(d.Independent(one, 1), d.Independent(two.expand((2, 3)), 1)),
            d.kl_divergence(d.LogNormal(loc, scale), d.LogNormal(scale, 2.0)),
            d.kl_divergence(d.Chi2(scale), d.Chi2(scale + 1)),
            *[by_normalizers(p, q) for p, q in families],
        ]

    agree(program, torch)


@pytest.mark.parametrize(("p", "q"), [("Beta", "Normal"), ("Gamma", "Gumbel"), ("Uniform", "Beta"),
                                      ("Pareto", "Gamma"), ("Normal", "Laplace"),
                                      ("ContinuousBernoulli", "Exponential")])  # fmt: skip
def test_divergence_is_the_mean_log_ratio(p: str, q: str) -> None:
    one, _ = build(evergrad, p, INSIDE if p == "Uniform" else PARAMETERS[p][0])
    other, _ = build(evergrad, q, PARAMETERS[q][1])
    evergrad.manual_seed(0)
    drawn = one.sample((4000,))
    ratios = one.log_prob(drawn) - other.log_prob(drawn)
    exact = kl_divergence(one, other)
    finite = exact.isfinite()
    error = (ratios.mean(0) - exact)[finite] / (ratios.std(0)[finite] / 4000**0.5)
    assert finite.any() and (error.abs() < 4.5).all()


@pytest.fixture
def registry() -> Any:
    """What tests register is forgotten afterwards."""
    before = dict(_KL_REGISTRY)
    yield
    _KL_REGISTRY.clear()
    _KL_REGISTRY.update(before)
    kl_registry._FOUND.clear()


class Sharp(Normal):
    """A subclass that finds the pairs of its parent."""


class Late(Exponential):
    """Another one."""


def test_subclasses_are_served(registry: Any) -> None:
    one, two = Sharp(0.0, 1.0), Normal(1.0, 2.0)
    assert kl_divergence(one, two) == kl_divergence(Normal(0.0, 1.0), two)

    @register_kl(Sharp, Normal)
    def _closer(p: Sharp, q: Normal) -> Any:
        return evergrad.tensor(7.0)

    assert kl_divergence(one, two) == 7
    assert kl_divergence(two, two) == 0


def test_ambiguity_is_told(registry: Any) -> None:
    @register_kl(Sharp, Exponential)
    def _one(p: Any, q: Any) -> Any:
        return evergrad.tensor(1.0)

    @register_kl(Normal, Late)
    def _two(p: Any, q: Any) -> Any:
        return evergrad.tensor(2.0)

    with pytest.warns(RuntimeWarning, match=r"Ambiguous kl_divergence\(Sharp, Late\)"):
        assert kl_divergence(Sharp(0.0, 1.0), Late(1.0)) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kl_divergence(Sharp(0.0, 1.0), Exponential(1.0))


def test_what_is_not_registered_is_refused() -> None:
    with pytest.raises(NotImplementedError, match=r"p type Laplace and q type Distribution"):
        kl_divergence(Laplace(0.0, 1.0), Distribution(validate_args=False))
    with pytest.raises(NotImplementedError, match="different exponential families"):
        _KL_REGISTRY[
            evergrad.distributions.ExponentialFamily, evergrad.distributions.ExponentialFamily
        ](Gamma(1.0, 1.0), Normal(0.0, 1.0))
    with pytest.raises(TypeError, match="Expected a Distribution subclass"):
        register_kl("int", Normal)
