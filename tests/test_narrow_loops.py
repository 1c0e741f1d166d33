"""Rows on 16-bit floats in eager mode: native loops give what float32 gives, rounded once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import config
from evergrad.compiler.native import jit
from evergrad.core.eager.fusion import eager_kernels

pytestmark = pytest.mark.skipif(not jit.can_jit(), reason="the system lets no process make code")

_UNARY = (
    "abs", "neg", "exp", "log1p", "sqrt", "rsqrt", "sin", "tanh", "sigmoid", "relu", "floor",
    "round", "sign", "square", "reciprocal", "erf", "isnan", "logical_not",
)  # fmt: skip
_BINARY = (
    "add", "sub", "mul", "div", "maximum", "minimum", "pow", "fmod", "remainder", "floor_divide",
    "atan2", "hypot", "copysign", "eq", "lt", "logaddexp",
)  # fmt: skip
_KINDS = [eg.bfloat16, eg.float16]


def _numbers(kind: Any, count: int = 1000, seed: int = 0) -> Any:
    x = np.random.default_rng(seed).standard_normal(count).astype(np.float32) * 3
    x[:8] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-4]
    return eg.tensor(x).to(kind)


def _check(function: Any, *given: Any) -> None:
    """Equal to the plain evaluation, but for one unit in the last place where float32 differs."""
    found = function(*given)
    with eager_kernels(False):
        expected = function(*given)
    assert found.dtype is expected.dtype and found.shape == expected.shape
    if found.dtype is eg.bool:
        assert eg.equal(found, expected)
        return
    unit = 2.0**-7 if found.dtype is eg.bfloat16 else 2.0**-10
    np.testing.assert_allclose(
        found.float().numpy(), expected.float().numpy(), rtol=unit, atol=1e-7, equal_nan=True
    )
    differ = (found != expected) & ~(found.isnan() & expected.isnan())
    assert differ.float().mean().item() < 0.02


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("name", _UNARY)
def test_functions_of_one_number(name: str, kind: Any) -> None:
    _check(getattr(eg, name), _numbers(kind))


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("name", _BINARY)
def test_functions_of_two_numbers(name: str, kind: Any) -> None:
    x, y = _numbers(kind), _numbers(kind, seed=1)
    _check(getattr(eg, name), x, y)
    _check(lambda x: getattr(eg, name)(x, 0.3), x)
    _check(lambda x: getattr(eg, name)(x, eg.tensor(1.7)), x)
    _check(lambda x: getattr(eg, name)(x, eg.tensor(1.7, dtype=kind)), x)


@pytest.mark.parametrize("kind", _KINDS)
def test_conversions(kind: Any) -> None:
    x = eg.randn(3000) * 100
    x[:5] = eg.tensor([float("nan"), float("inf"), 1e-41, 3e38, -0.0])
    _check(lambda x: x.to(kind), x)
    _check(lambda x: x.float(), x.to(kind))
    _check(lambda x: x.to(eg.bool), x.to(kind))


@pytest.mark.parametrize("kind", _KINDS)
def test_layouts_and_sizes(kind: Any) -> None:
    for x in (
        _numbers(kind, 8), _numbers(kind, 129), _numbers(kind, 4000).reshape(40, 100).t(),
        _numbers(kind, 4000)[::3], _numbers(kind, 300).reshape(3, 100) + _numbers(kind, 100),
        _numbers(kind, 1 << 20),
    ):  # fmt: skip
        _check(lambda x: (x * x + x).tanh(), x)
        _check(lambda x: eg.where(x > 0, x, -x), x)


@pytest.mark.parametrize("kind", _KINDS)
def test_gradients(kind: Any) -> None:
    def gradient(x: Any) -> Any:
        x = x.detach().requires_grad_()
        (eg.nn.functional.gelu(x) * x.sigmoid()).sum().backward()
        return x.grad

    x = eg.randn(500).to(kind)
    found = gradient(x)
    with eager_kernels(False):
        expected = gradient(x)
    unit = 2.0**-7 if kind is eg.bfloat16 else 2.0**-10
    np.testing.assert_allclose(
        found.float().numpy(), expected.float().numpy(), rtol=4 * unit, atol=4 * unit
    )


def test_results_do_not_depend_on_the_number_of_calls() -> None:
    assert config.EAGER_KERNELS
    x = _numbers(eg.bfloat16, 777)
    first = x.exp()
    assert all(eg.equal(first.nan_to_num(), x.exp().nan_to_num()) for _ in range(30))
