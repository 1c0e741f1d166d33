"""Transforms against PyTorch's: there and back, volume changes, shapes, caches and equality."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import evergrad
from evergrad.distributions import (
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    Normal,
    PowerTransform,
    SigmoidTransform,
    StackTransform,
    TanhTransform,
    TransformedDistribution,
)
from twins import agree, fixed

from .test_families import attempt, gradients

LINE = [[-1.3, 0.2, 0.9], [2.5, -0.4, 0.05]]
POSITIVE = [[1.3, 0.2, 0.9], [2.5, 0.4, 0.05]]
SQUARE = [[0.4, 9.0, 9.0], [0.3, -0.2, 9.0], [-0.7, 0.1, 0.6]]

Make = Callable[[Any], Any]


def _joined(kind: str) -> Make:
    def make(d: Any) -> Any:
        parts = [d.ExpTransform(), d.AffineTransform(1.0, -3.0), d.TanhTransform()]
        if kind == "stack":
            return d.StackTransform(parts, dim=-1)
        return d.CatTransform(parts[:2], dim=-1, lengths=[2, 1])

    return make


TRANSFORMS: dict[str, tuple[Make, Any]] = {
    "identity": (lambda d: d.identity_transform, LINE),
    "abs": (lambda d: d.AbsTransform(), LINE),
    "affine": (lambda d: d.AffineTransform(0.5, -2.0), LINE),
    "affine-event": (lambda d: d.AffineTransform(0.5, 3.0, event_dim=1), LINE),
    "exp": (lambda d: d.ExpTransform(), LINE),
    "power": (lambda d: d.PowerTransform(1.5), POSITIVE),
    "sigmoid": (lambda d: d.SigmoidTransform(), LINE),
    "softplus": (lambda d: d.SoftplusTransform(), LINE),
    "tanh": (lambda d: d.TanhTransform(), LINE),
    "softmax": (lambda d: d.SoftmaxTransform(), LINE),
    "stick": (lambda d: d.StickBreakingTransform(), LINE),
    "lower": (lambda d: d.LowerCholeskyTransform(), SQUARE),
    "definite": (lambda d: d.PositiveDefiniteTransform(), SQUARE),
    "correlation": (lambda d: d.CorrCholeskyTransform(), LINE),
    "reshape": (lambda d: d.ReshapeTransform((3,), (3, 1)), LINE),
    "inverse": (lambda d: d.ExpTransform().inv, POSITIVE),
    "independent": (lambda d: d.IndependentTransform(d.ExpTransform(), 1), LINE),
    "compose": (
        lambda d: d.ComposeTransform(
            [d.AffineTransform(0.2, -1.5), d.StickBreakingTransform(), d.ExpTransform()]
        ),
        LINE,
    ),
    "cat": (_joined("cat"), LINE),
    "stack": (_joined("stack"), LINE),
    "cumulative": (lambda d: d.CumulativeDistributionTransform(d.Normal(0.3, 2.0)), LINE),
}
every_transform = pytest.mark.parametrize("name", TRANSFORMS)


@every_transform
def test_values(torch: ModuleType, name: str) -> None:
    make, values = TRANSFORMS[name]

    def program(ns: Any) -> Any:
        transform = make(ns.distributions)
        x = fixed(ns, values).requires_grad_()
        y = transform(x)
        back = transform.inv(y.detach())
        change = attempt(lambda: transform.log_abs_det_jacobian(x, y))
        slopes = None if isinstance(change, str) else gradients(ns, change, [x])
        return y, gradients(ns, y, [x]), back, transform(back), change, slopes

    agree(program, torch)


@every_transform
def test_forms(torch: ModuleType, name: str) -> None:
    make, values = TRANSFORMS[name]

    def program(ns: Any) -> Any:
        transform = make(ns.distributions)
        x = fixed(ns, values)
        return [
            repr(transform).replace("evergrad", "torch"), repr(transform.inv),
            f"{transform.domain!r} {transform.codomain!r}", transform.bijective,
            attempt(lambda: transform.sign), attempt(lambda: transform.event_dim),
            transform.domain.event_dim, transform.codomain.event_dim,
            tuple(transform.forward_shape(x.shape)),
            tuple(transform.inverse_shape(transform(x).shape)),
            transform.codomain.check(transform(x)), transform.inv.inv is transform,
        ]  # fmt: skip

    agree(program, torch)


@every_transform
def test_equality(torch: ModuleType, name: str) -> None:
    make, _ = TRANSFORMS[name]

    def program(ns: Any) -> Any:
        one, other = make(ns.distributions), make(ns.distributions)
        return one == one, one == other, one != other, one.inv == other.inv, one == 3

    agree(program, torch)


@every_transform
def test_caching(name: str) -> None:
    make, values = TRANSFORMS[name]
    if name == "cumulative":
        values = [[0.2, 0.5]]
    transform = make(evergrad.distributions).with_cache(1)
    assert transform.with_cache(1) is transform
    x = fixed(evergrad, values)
    y = transform(x)
    assert transform(x) is y
    assert transform.inv(y) is x
    plain = transform.with_cache(0) if name != "compose" else make(evergrad.distributions)
    assert plain(x) is not y or name == "identity"


@every_transform
def test_copies(name: str) -> None:
    make, values = TRANSFORMS[name]
    transform = make(evergrad.distributions)
    x = fixed(evergrad, values)
    y, inverse = transform(x), transform.inv
    for made in (copy.copy(transform), copy.deepcopy(transform)):
        assert evergrad.equal(made(x), y)
        assert evergrad.equal(made.inv(y), inverse(y))
    if name != "cumulative":
        assert evergrad.equal(pickle.loads(pickle.dumps(transform))(x), y)


def test_transforms_are_freed_by_reference_count() -> None:
    gc.collect()
    gc.disable()
    try:
        transform = ComposeTransform([ExpTransform(), AffineTransform(0.0, 1.0)], cache_size=1)
        transform.inv(transform(evergrad.ones(2)))
        del transform
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_inverse_of_a_cached_draw_is_exact() -> None:
    steps = [TanhTransform(cache_size=1), AffineTransform(0.0, 3.0, cache_size=1)]
    made = TransformedDistribution(Normal(0.0, 50.0), steps)
    evergrad.manual_seed(0)
    drawn = made.sample((20,))
    before = steps[0].inv(steps[1].inv(drawn))
    assert before.abs().max() > 20 and before.isfinite().all()  # where tanh rounds to 1
    assert made.log_prob(drawn).isfinite().all()


def test_tensor_parameters(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        d = ns.distributions
        loc, scale = fixed(ns, [0.1, 0.2, 0.3]), fixed(ns, [[1.0], [-2.0]])
        affine, power = d.AffineTransform(loc, scale), d.PowerTransform(fixed(ns, [2.0, -1.0, 0.5]))
        x = fixed(ns, POSITIVE)
        return [
            affine.sign, power.sign, affine(x), power(x), power.inv(power(x)),
            affine.log_abs_det_jacobian(x, affine(x)), tuple(affine.forward_shape((3,))),
            affine == d.AffineTransform(loc, scale), affine == d.AffineTransform(loc, 1.0),
            power == d.PowerTransform(2.0), d.AffineTransform(0, 0).sign,
        ]  # fmt: skip

    agree(program, torch)


def test_parameters_get_gradients() -> None:
    exponent = evergrad.tensor(1.5, requires_grad=True)
    PowerTransform(exponent)(evergrad.tensor([2.0, 3.0])).sum().backward()
    expected = 2**1.5 * 0.6931471805599453 + 3**1.5 * 1.0986122886681098
    assert exponent.grad.item() == pytest.approx(expected, rel=1e-6)


def test_stacks_have_a_transform_for_each_slice() -> None:
    stacked = StackTransform([ExpTransform(), SigmoidTransform()], dim=1)
    x = evergrad.tensor([[0.0, 0.0], [1.0, 2.0]])
    expected = evergrad.stack([x[:, 0].exp(), x[:, 1].sigmoid()], 1)
    assert evergrad.equal(stacked(x), expected)
