"""Slopes of draws: against differences of quantiles, to more digits than PyTorch's have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evergrad
from evergrad.distributions import Beta, Chi2, Dirichlet, Gamma, StudentT, VonMises, Wishart
from evergrad.errors import GradientError
from evergrad.ops.rows.random.draws import standard_gamma
from evergrad.ops.rows.random.gamma import sample_dirichlet, standard_gamma_grad
from evergrad.ops.rows.special.quantile_derivatives import dirichlet_slope, gamma_slope

stats = pytest.importorskip("scipy.stats", reason="scipy is not installed: pip install scipy")
special = pytest.importorskip("scipy.special", reason="scipy is not installed: pip install scipy")

LEVELS = np.array([1e-4, 0.01, 0.2, 0.5, 0.8, 0.99, 1 - 1e-4])


def slope_of_quantile(quantile: Callable[[Any], Any], shape: float) -> Any:
    """By differences of fourth order of the logarithm, which is smooth also where x is tiny."""
    h = 1e-3 * shape
    above, below, far_above, far_below = (np.log(quantile(shape + k * h)) for k in (1, -1, 2, -2))
    return quantile(shape) * (8 * (above - below) - (far_above - far_below)) / (12 * h)


@pytest.mark.parametrize("alpha", [0.05, 0.3, 1.0, 2.5, 20.0, 300.0, 1e5])
def test_gamma_slope_is_that_of_the_quantile(alpha: float) -> None:
    x = special.gammaincinv(alpha, LEVELS)
    expected = slope_of_quantile(lambda a: special.gammaincinv(a, LEVELS), alpha)
    np.testing.assert_allclose(gamma_slope(np.full(x.shape, alpha), x), expected, rtol=1e-7)


@pytest.mark.parametrize("a", [0.1, 0.7, 1.0, 4.0, 150.0])
@pytest.mark.parametrize("b", [0.2, 1.0, 9.0, 80.0])
def test_dirichlet_slope_is_that_of_the_beta_quantile(a: float, b: float) -> None:
    x = special.betaincinv(a, b, LEVELS)
    levels = LEVELS[x < 1 - 1e-6]  # nearer to 1 the quantile itself has too few digits
    x = x[x < 1 - 1e-6]
    expected = slope_of_quantile(lambda a: special.betaincinv(a, b, levels), a) / (1 - x)
    found = dirichlet_slope(x, np.full(x.shape, a), np.full(x.shape, a + b))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_gamma_slope_satisfies_its_integral_exactly() -> None:
    """For shape 1, ``dx/da`` has the closed form of the exponential integral."""
    x = np.array([0.01, 0.3, 1.0, 2.0, 9.0])
    # Q(a, x) at a = 1: d/da = exp(-x) log(x) + E1(x) - exp(-x) digamma(1), over the density exp(-x)
    expected = np.log(x) + special.exp1(x) * np.exp(x) + np.euler_gamma
    np.testing.assert_allclose(gamma_slope(np.ones(5), x), expected, rtol=1e-12)


def test_slopes_at_the_ends_are_finite() -> None:
    tiny = np.finfo(np.float64).tiny
    assert np.isfinite(gamma_slope(np.array([0.01, 1.0, 50.0]), np.array([tiny, tiny, 1e4]))).all()
    ends = dirichlet_slope(np.array([0.0, tiny, 1.0]), np.full(3, 0.5), np.full(3, 2.0))
    assert np.isfinite(ends).all()


@pytest.mark.parametrize(
    ("make", "moment", "expected"),
    [
        (lambda a: Gamma(a, 2.0), lambda x: x, 1 / 2.0),
        (lambda a: Gamma(a, 2.0), lambda x: x.log(), special.polygamma(1, 1.7)),
        (lambda a: Chi2(a), lambda x: x, 1.0),
        (lambda a: Beta(a, 3.0), lambda x: x, 3.0 / 4.7**2),
        (lambda a: Beta(2.0, a), lambda x: x, -2.0 / 3.7**2),
        (lambda a: StudentT(a + 5), lambda x: x**2, -2 / 4.7**2),
    ],
)
def test_mean_slope_is_the_slope_of_the_mean(
    make: Callable[[Any], Any], moment: Callable[[Any], Any], expected: float
) -> None:
    alpha = evergrad.tensor(np.full(4000, 1.7), requires_grad=True)
    evergrad.manual_seed(1)
    moment(make(alpha).rsample()).sum().backward()
    slopes = alpha.grad.numpy()
    assert abs(slopes.mean() - expected) < 5 * slopes.std() / slopes.size**0.5


def test_dirichlet_slopes_keep_the_sum() -> None:
    alpha = evergrad.tensor([[0.3, 2.0, 5.0]], dtype=evergrad.float64, requires_grad=True)
    evergrad.manual_seed(0)
    Dirichlet(alpha).rsample((6,)).sum().backward()
    np.testing.assert_allclose(alpha.grad.numpy(), 0, atol=1e-12)


def test_second_slopes_by_the_shape_are_refused() -> None:
    alpha = evergrad.tensor([1.5], requires_grad=True)
    with pytest.raises(
        GradientError, match="standard_gamma_grad has no derivative with respect to argument 0"
    ):
        evergrad.autograd.grad(standard_gamma(alpha).sum(), alpha, create_graph=True)


def test_slope_by_the_draw(torch: Any) -> None:
    x = evergrad.tensor([0.2, 1.0, 6.0], dtype=evergrad.float64, requires_grad=True)
    alpha = evergrad.tensor([0.5, 1.5, 3.0], dtype=evergrad.float64)
    assert evergrad.autograd.gradcheck(lambda v: standard_gamma_grad(alpha, v), (x,))


@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_incomplete_gamma_functions_have_slopes_by_their_order(name: str) -> None:
    a = evergrad.tensor([0.4, 1.0, 7.0], dtype=evergrad.float64, requires_grad=True)
    x = evergrad.tensor([0.3, 2.0, 6.0], dtype=evergrad.float64, requires_grad=True)
    assert evergrad.autograd.gradcheck(getattr(evergrad, name), (a, x))


def test_gamma_cdf_can_be_differentiated() -> None:
    alpha = evergrad.tensor(2.5, dtype=evergrad.float64, requires_grad=True)
    rate = evergrad.tensor(0.7, dtype=evergrad.float64, requires_grad=True)
    value = evergrad.tensor(3.0, dtype=evergrad.float64)
    assert evergrad.autograd.gradcheck(lambda a, r: Gamma(a, r).cdf(value), (alpha, rate))


def test_wishart_draws_move_with_the_scale() -> None:
    scale = evergrad.tensor([[1.2, 0.0], [0.3, 0.8]], dtype=evergrad.float64, requires_grad=True)

    def draw(factor: Any) -> Any:
        evergrad.manual_seed(4)
        return Wishart(5.0, scale_tril=factor.tril()).rsample((3,))

    assert evergrad.autograd.gradcheck(draw, (scale,))


def test_wishart_divergence_is_that_of_gammas() -> None:
    """In one dimension a Wishart number is a gamma number."""
    one = Wishart(evergrad.tensor(3.0), evergrad.tensor([[2.0]]))
    two = Wishart(evergrad.tensor(4.5), evergrad.tensor([[0.7]]))
    expected = evergrad.distributions.kl_divergence(Gamma(1.5, 0.25), Gamma(2.25, 1 / 1.4))
    found = evergrad.distributions.kl_divergence(one, two)
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)


def test_von_mises_is_exact() -> None:
    k = np.array([1e-3, 0.5, 4.0, 60.0])
    made = VonMises(evergrad.tensor(np.full(4, 0.3)), evergrad.tensor(k))
    value = np.array([-2.0, 0.1, 0.5, 0.35])
    found = made.log_prob(evergrad.tensor(value)).numpy()
    np.testing.assert_allclose(found, stats.vonmises.logpdf(value, k, loc=0.3), rtol=1e-12)
    expected = 1 - special.i1e(k) / special.i0e(k)
    np.testing.assert_allclose(made.variance.numpy(), expected, rtol=1e-9)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_draws_have_the_type_of_their_concentrations(dtype: str) -> None:
    alpha = evergrad.tensor([0.5, 2.0], dtype=getattr(evergrad, dtype), requires_grad=True)
    for draw in (standard_gamma, sample_dirichlet):
        drawn = draw(alpha)
        assert drawn.dtype is alpha.dtype
        drawn.sum().backward()
        assert alpha.grad.dtype is alpha.dtype and alpha.grad.isfinite().all()


@pytest.mark.parametrize("alpha", [0.3, 4.0])
def test_draws_follow_their_distribution(alpha: float) -> None:
    evergrad.manual_seed(0)
    shapes = evergrad.full((3000,), alpha, dtype=evergrad.float64)
    drawn = standard_gamma(shapes).numpy()
    assert stats.kstest(drawn, "gamma", (alpha,)).pvalue > 0.001
    shares = sample_dirichlet(evergrad.stack([shapes, shapes + 1, shapes + 2], -1)).numpy()
    for i, own in enumerate((alpha, alpha + 1, alpha + 2)):
        rest = 3 * alpha + 3 - own
        assert stats.kstest(shares[:, i], "beta", (own, rest)).pvalue > 0.001
