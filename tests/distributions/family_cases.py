"""Distributions with parameters, made alike in both libraries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from twins import leaf

Make = Callable[..., Any]


@dataclass(frozen=True)
class Family:
    """A distribution: ``make(ns, **parameters)`` of tensors with these values.

    ``tolerance`` is what PyTorch's densities allow, ``slope`` what its slopes of draws do: both are
    the usual ones unless PyTorch approximates. ``dtype`` is one in which PyTorch has the density.
    """

    make: Make
    parameters: dict[str, Any]
    tolerance: float = 1e-9
    slope: float = 1e-9
    dtype: str = "float64"

    def build(self, ns: Any, dtype: str = "", **options: Any) -> tuple[Any, list[Any]]:
        """The distribution and the leaves it was made of."""
        leaves = {name: leaf(ns, values) for name, values in self.parameters.items()}
        leaves = {
            name: t.detach().to(getattr(ns, dtype or self.dtype)) for name, t in leaves.items()
        }
        tensors = [t.requires_grad_() for t in leaves.values()]
        return self.make(ns, **leaves, **options), tensors


def plain(name: str) -> Make:
    """A class whose parameters are all tensors."""

    def make(ns: Any, **given: Any) -> Any:
        return getattr(ns.distributions, name)(**given)

    return make


def counted(name: str, total_count: int) -> Make:
    """A class that has a number of trials besides."""

    def make(ns: Any, **given: Any) -> Any:
        return getattr(ns.distributions, name)(total_count, **given)

    return make


def _mixture(ns: Any, weights: Any, loc: Any, scale: Any, **options: Any) -> Any:
    d = ns.distributions
    return d.MixtureSameFamily(d.Categorical(logits=weights), d.Normal(loc, scale), **options)


def _vector_mixture(ns: Any, weights: Any, loc: Any, scale: Any, **options: Any) -> Any:
    d = ns.distributions
    components = d.Independent(d.Normal(loc, scale), 1)
    return d.MixtureSameFamily(d.Categorical(weights), components, **options)


def _independent(ns: Any, loc: Any, scale: Any, **options: Any) -> Any:
    d = ns.distributions
    return d.Independent(d.Laplace(loc, scale), 1, **options)


def _transformed(ns: Any, loc: Any, scale: Any, shift: Any, **options: Any) -> Any:
    d = ns.distributions
    steps = [d.AffineTransform(shift, -2.0), d.SigmoidTransform(), d.PowerTransform(shift.exp())]
    return d.TransformedDistribution(d.Normal(loc, scale), steps, **options)


def _reshaped(ns: Any, loc: Any, scale: Any, **options: Any) -> Any:
    d = ns.distributions
    base = d.Independent(d.Normal(loc, scale), 1)
    steps = [d.ReshapeTransform((4,), (2, 2)), d.ExpTransform()]
    return d.TransformedDistribution(base, steps, **options)


def _normal(which: str) -> Make:
    def make(ns: Any, loc: Any, root: Any, **options: Any) -> Any:
        matrix = root @ root.mT + ns.eye(root.shape[-1], dtype=root.dtype)
        if which == "scale_tril":
            matrix = ns.linalg.cholesky(matrix)
        return ns.distributions.MultivariateNormal(loc, **{which: matrix}, **options)

    return make


def _wishart(ns: Any, df: Any, root: Any, **options: Any) -> Any:
    matrix = root @ root.mT + ns.eye(root.shape[-1], dtype=root.dtype)
    return ns.distributions.Wishart(df, covariance_matrix=matrix, **options)


def _lkj(ns: Any, concentration: Any, **options: Any) -> Any:
    return ns.distributions.LKJCholesky(3, concentration, **options)


ROOT = [[1.0, 0.3, -0.2], [0.1, 0.7, 0.4], [-0.5, 0.2, 1.1]]
WEIGHTS = [[0.2, 0.5, 0.3], [1.0, 2.0, 0.4]]
LOC, SCALE = [[0.3, -1.2, 2.0], [0.0, 0.7, -3.0]], [0.5, 1.5, 2.5]
SHAPES1, SHAPES0 = [[0.4, 1.0, 3.5], [12.0, 0.05, 1.7]], [0.7, 2.0, 5.0]
PROBS = [[0.2, 0.5, 0.9], [0.4999, 0.01, 0.7]]

FAMILIES: dict[str, Family] = {
    "Bernoulli": Family(plain("Bernoulli"), {"probs": PROBS}),
    "Bernoulli-logits": Family(plain("Bernoulli"), {"logits": LOC}),
    "Beta": Family(
        plain("Beta"), {"concentration1": SHAPES1, "concentration0": SHAPES0}, slope=2e-3
    ),
    "Binomial": Family(counted("Binomial", 7), {"probs": PROBS}),
    "Binomial-logits": Family(counted("Binomial", 40), {"logits": LOC}),
    "Categorical": Family(plain("Categorical"), {"probs": WEIGHTS}),
    "Categorical-logits": Family(plain("Categorical"), {"logits": LOC}),
    "Cauchy": Family(plain("Cauchy"), {"loc": LOC, "scale": SCALE}),
    "Chi2": Family(plain("Chi2"), {"df": SHAPES1}, slope=2e-3),
    "ContinuousBernoulli": Family(plain("ContinuousBernoulli"), {"probs": PROBS}),
    "ContinuousBernoulli-logits": Family(plain("ContinuousBernoulli"), {"logits": LOC}),
    "Dirichlet": Family(plain("Dirichlet"), {"concentration": SHAPES1}, slope=2e-3),
    "Exponential": Family(plain("Exponential"), {"rate": SHAPES1}),
    "FisherSnedecor": Family(
        plain("FisherSnedecor"), {"df1": [[1.5, 5.0], [0.8, 9.0]], "df2": [3.0, 7.0]}, slope=2e-3
    ),
    "Gamma": Family(plain("Gamma"), {"concentration": SHAPES1, "rate": SHAPES0}, slope=2e-3),
    "GeneralizedPareto": Family(
        plain("GeneralizedPareto"),
        {"loc": LOC, "scale": SCALE, "concentration": [0.4, -0.3, 1.2]},
        tolerance=1e-5,
        slope=1e-5,
        dtype="float32",
    ),
    "Geometric": Family(plain("Geometric"), {"probs": PROBS}),
    "Geometric-logits": Family(plain("Geometric"), {"logits": LOC}),
    "Gumbel": Family(plain("Gumbel"), {"loc": LOC, "scale": SCALE}),
    "HalfCauchy": Family(plain("HalfCauchy"), {"scale": SHAPES1}),
    "HalfNormal": Family(plain("HalfNormal"), {"scale": SHAPES1}),
    "Independent": Family(_independent, {"loc": LOC, "scale": SCALE}),
    "InverseGamma": Family(
        plain("InverseGamma"),
        {"concentration": [[0.8, 3.0], [9.0, 1.5]], "rate": [0.7, 2.0]},
        slope=2e-3,
    ),
    "Kumaraswamy": Family(
        plain("Kumaraswamy"), {"concentration1": SHAPES1, "concentration0": SHAPES0}
    ),
    "LKJCholesky": Family(_lkj, {"concentration": [0.7, 2.5]}),
    "Laplace": Family(plain("Laplace"), {"loc": LOC, "scale": SCALE}),
    "LogNormal": Family(plain("LogNormal"), {"loc": LOC, "scale": SCALE}),
    "LogisticNormal": Family(plain("LogisticNormal"), {"loc": LOC, "scale": SCALE}),
    "LowRankMultivariateNormal": Family(
        plain("LowRankMultivariateNormal"),
        {"loc": LOC, "cov_factor": [[1.0, 0.2], [0.4, -0.3], [0.1, 0.8]], "cov_diag": SCALE},
    ),
    "MixtureSameFamily": Family(_mixture, {"weights": WEIGHTS, "loc": LOC, "scale": SCALE}),
    "MixtureSameFamily-vectors": Family(
        _vector_mixture, {"weights": [0.3, 0.7], "loc": LOC, "scale": SCALE}
    ),
    "Multinomial": Family(counted("Multinomial", 6), {"probs": WEIGHTS}),
    "MultivariateNormal": Family(_normal("covariance_matrix"), {"loc": LOC, "root": ROOT}),
    "MultivariateNormal-precision": Family(_normal("precision_matrix"), {"loc": LOC, "root": ROOT}),
    "MultivariateNormal-tril": Family(_normal("scale_tril"), {"loc": LOC[0], "root": [ROOT, ROOT]}),
    "NegativeBinomial": Family(counted("NegativeBinomial", 4), {"probs": PROBS}),
    "NegativeBinomial-logits": Family(
        plain("NegativeBinomial"), {"total_count": SHAPES0, "logits": LOC}
    ),
    "Normal": Family(plain("Normal"), {"loc": LOC, "scale": SCALE}),
    "OneHotCategorical": Family(plain("OneHotCategorical"), {"probs": WEIGHTS}),
    "OneHotCategoricalStraightThrough": Family(
        plain("OneHotCategoricalStraightThrough"), {"logits": LOC}
    ),
    "Pareto": Family(plain("Pareto"), {"scale": SCALE, "alpha": SHAPES1}),
    "Poisson": Family(plain("Poisson"), {"rate": SHAPES1}),
    "RelaxedBernoulli": Family(plain("RelaxedBernoulli"), {"temperature": 0.7, "probs": PROBS}),
    "RelaxedOneHotCategorical": Family(
        plain("RelaxedOneHotCategorical"), {"temperature": 0.7, "logits": LOC}
    ),
    "StudentT": Family(
        plain("StudentT"), {"df": [1.5, 3.0, 8.0], "loc": LOC, "scale": SCALE}, slope=2e-3
    ),
    "TransformedDistribution": Family(
        _transformed, {"loc": LOC, "scale": SCALE, "shift": [0.1, 0.2, 0.3]}
    ),
    "TransformedDistribution-reshaped": Family(
        _reshaped, {"loc": [[0.1, 0.2, 0.3, 0.4]] * 2, "scale": 0.5}
    ),
    "Uniform": Family(plain("Uniform"), {"low": LOC, "high": [4.0, 5.0, 6.0]}),
    "VonMises": Family(
        plain("VonMises"), {"loc": [[0.3, -1.2]], "concentration": [[0.5, 4.5]]}, tolerance=1e-6
    ),
    "Weibull": Family(plain("Weibull"), {"scale": SCALE, "concentration": SHAPES1}),
    "Wishart": Family(_wishart, {"df": [3.5, 7.0], "root": ROOT}, slope=2e-3),
}
