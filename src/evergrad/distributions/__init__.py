"""Probability distributions: draws, densities and divergences that can be differentiated.

A distribution has a batch of parameters and draws events: ``sample`` draws them, ``rsample`` so
that they can be differentiated by the parameters, ``log_prob`` gives the logarithm of their
density. The submodules are named as in PyTorch.
"""

from typing import TYPE_CHECKING

from evergrad.distributions.bernoulli import Bernoulli
from evergrad.distributions.beta import Beta
from evergrad.distributions.binomial import Binomial
from evergrad.distributions.categorical import Categorical
from evergrad.distributions.cauchy import Cauchy
from evergrad.distributions.chi2 import Chi2
from evergrad.distributions.constraint_registry import biject_to, transform_to
from evergrad.distributions.continuous_bernoulli import ContinuousBernoulli
from evergrad.distributions.dirichlet import Dirichlet
from evergrad.distributions.distribution import Distribution
from evergrad.distributions.exp_family import ExponentialFamily
from evergrad.distributions.exponential import Exponential
from evergrad.distributions.fishersnedecor import FisherSnedecor
from evergrad.distributions.gamma import Gamma
from evergrad.distributions.generalized_pareto import GeneralizedPareto
from evergrad.distributions.geometric import Geometric
from evergrad.distributions.gumbel import Gumbel
from evergrad.distributions.half_cauchy import HalfCauchy
from evergrad.distributions.half_normal import HalfNormal
from evergrad.distributions.independent import Independent
from evergrad.distributions.inverse_gamma import InverseGamma
from evergrad.distributions.kl import kl_divergence, register_kl
from evergrad.distributions.kumaraswamy import Kumaraswamy
from evergrad.distributions.laplace import Laplace
from evergrad.distributions.lkj_cholesky import LKJCholesky
from evergrad.distributions.log_normal import LogNormal
from evergrad.distributions.logistic_normal import LogisticNormal
from evergrad.distributions.lowrank_multivariate_normal import LowRankMultivariateNormal
from evergrad.distributions.mixture_same_family import MixtureSameFamily
from evergrad.distributions.multinomial import Multinomial
from evergrad.distributions.multivariate_normal import MultivariateNormal
from evergrad.distributions.negative_binomial import NegativeBinomial
from evergrad.distributions.normal import Normal
from evergrad.distributions.one_hot_categorical import (
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
)
from evergrad.distributions.pareto import Pareto
from evergrad.distributions.poisson import Poisson
from evergrad.distributions.relaxed_bernoulli import RelaxedBernoulli
from evergrad.distributions.relaxed_categorical import RelaxedOneHotCategorical
from evergrad.distributions.studentT import StudentT
from evergrad.distributions.transformed_distribution import TransformedDistribution
from evergrad.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    CatTransform,
    ComposeTransform,
    CorrCholeskyTransform,
    CumulativeDistributionTransform,
    ExpTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    PowerTransform,
    ReshapeTransform,
    SigmoidTransform,
    SoftmaxTransform,
    SoftplusTransform,
    StackTransform,
    StickBreakingTransform,
    TanhTransform,
    Transform,
    identity_transform,
)
from evergrad.distributions.uniform import Uniform
from evergrad.distributions.von_mises import VonMises
from evergrad.distributions.weibull import Weibull
from evergrad.distributions.wishart import Wishart
from evergrad.keywords import suggest_keywords
from evergrad.lazy import known_names

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "Bernoulli",
    "Beta",
    "Binomial",
    "CatTransform",
    "Categorical",
    "Cauchy",
    "Chi2",
    "ComposeTransform",
    "ContinuousBernoulli",
    "CorrCholeskyTransform",
    "CumulativeDistributionTransform",
    "Dirichlet",
    "Distribution",
    "ExpTransform",
    "Exponential",
    "ExponentialFamily",
    "FisherSnedecor",
    "Gamma",
    "GeneralizedPareto",
    "Geometric",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Independent",
    "IndependentTransform",
    "InverseGamma",
    "Kumaraswamy",
    "LKJCholesky",
    "Laplace",
    "LogNormal",
    "LogisticNormal",
    "LowRankMultivariateNormal",
    "LowerCholeskyTransform",
    "MixtureSameFamily",
    "Multinomial",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "Pareto",
    "Poisson",
    "PositiveDefiniteTransform",
    "PowerTransform",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StackTransform",
    "StickBreakingTransform",
    "StudentT",
    "TanhTransform",
    "Transform",
    "TransformedDistribution",
    "Uniform",
    "VonMises",
    "Weibull",
    "Wishart",
    "biject_to",
    "identity_transform",
    "kl_divergence",
    "register_kl",
    "transform_to",
]

suggest_keywords(*(cls for cls in map(globals().get, __all__) if isinstance(cls, type)))

if not TYPE_CHECKING:
    __getattr__ = known_names(__name__)
