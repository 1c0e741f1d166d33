"""Eager composites on shapes that get no program: one node, and calls that all shapes share."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.compiler.eager import any_extents
from evergrad.core.eager.fusion import clear_composite_kernels, eager_kernels
from evergrad.core.op import clear_specializations
from evergrad.memory.ledger import LEDGER

F = eg.nn.functional

# More sizes of a batch than get programs and traces.
SIZES = (21, 34, 47, 52, 26, 39, 58, 23, 44, 31, 37, 49)


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    clear_specializations()
    yield
    clear_specializations()


def _data(*shape: int, seed: int = 0) -> Any:
    values = np.random.default_rng(seed + sum(shape)).standard_normal(shape)
    return eg.tensor(values, dtype=eg.float32)


def _classes(n: int, count: int) -> Any:
    return eg.tensor(np.random.default_rng(n).integers(0, count, n))


_WEIGHT, _BIAS, _SCALE = _data(48, 40), _data(48, seed=1), _data(40, seed=2)

Case = tuple[Callable[[int], list[Any]], Callable[..., Any]]
CASES: dict[str, Case] = {
    "linear": (lambda n: [_data(n, 40), _WEIGHT, _BIAS], lambda x, w, b: F.linear(x, w, b)),
    "linear, three dimensions": (
        lambda n: [_data(2, n, 40), _WEIGHT, _BIAS], lambda x, w, b: F.linear(x, w, b)),
    "layer norm": (
        lambda n: [_data(n, 40), _SCALE, _SCALE],
        lambda x, w, b: F.layer_norm(x, (40,), w, b)),
    "RMS norm": (lambda n: [_data(n, 40), _SCALE], lambda x, w: F.rms_norm(x, (40,), w)),
    "group norm": (
        lambda n: [_data(n, 8, 10), _data(8), _data(8, seed=3)],
        lambda x, w, b: F.group_norm(x, 2, w, b)),
    "batch norm": (
        lambda n: [_data(n, 8, 10), _data(8), _data(8, seed=3)],
        lambda x, w, b: F.batch_norm(x, eg.zeros(8), eg.ones(8), w, b, training=True)),
    "cross-entropy": (
        lambda n: [_data(n, 40), _classes(n, 40)], lambda x, t: F.cross_entropy(x, t)),
    "cross-entropy, none": (
        lambda n: [_data(n, 40), _classes(n, 40)],
        lambda x, t: F.cross_entropy(x, t, reduction="none")),
    "nll_loss": (
        lambda n: [_data(n, 40), _classes(n, 40)], lambda x, t: F.nll_loss(x, t)),
    "attention": (
        lambda n: [_data(2, 2, n, 16, seed=s) for s in range(3)],
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)),
    "cross attention": (
        lambda n: [_data(2, 2, 20, 16), _data(2, 2, n, 16), _data(2, 2, n, 16, seed=1)],
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v)),
    "gelu": (lambda n: [_data(n, 40)], lambda x: F.gelu(x)),
    "gelu, tanh": (lambda n: [_data(n, 40)], lambda x: F.gelu(x, approximate="tanh")),
    "silu": (lambda n: [_data(n, 40)], lambda x: F.silu(x)),
    "mish": (lambda n: [_data(n, 40)], lambda x: F.mish(x)),
}  # fmt: skip


def _step(given: list[Any], function: Callable[..., Any], needs: int = -1) -> list[Any]:
    """The result, and the gradients by the floats among the arguments."""
    leaves = [t.clone() for t in given]
    wanted = [
        t.requires_grad_() for i, t in enumerate(leaves) if t.is_floating_point() and needs >> i & 1
    ]
    out = function(*[t.clone() for t in leaves])  # leaves are taken for parameters
    direction = _data(*out.shape, seed=7)
    return [out, *(eg.autograd.grad((out * direction).sum(), wanted) if wanted else ())]


def _close(found: list[Any], expected: list[Any]) -> None:
    for a, b in zip(found, expected, strict=True):
        size = max(1.0, float(b.detach().abs().max()))
        eg.testing.assert_close(a, b, rtol=2e-4, atol=2e-5 * size)


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls that ran so, by the name of their function."""
    names: list[str] = []
    original = any_extents.AnyExtentSpecialization.call

    def call(self: Any, state: Any, tensors: Any) -> Any:
        names.append(self.op.name)
        return original(self, state, tensors)

    monkeypatch.setattr(any_extents.AnyExtentSpecialization, "call", call)
    return names


@pytest.mark.parametrize("name", CASES)
def test_further_shapes_agree_with_rows(name: str, shared: list[str]) -> None:
    make, function = CASES[name]
    with eager_kernels(True, least=1):
        first = [_step(make(n), function) for n in SIZES]
        assert len(shared) >= len(SIZES) - 6
        again = [_step(make(n), function) for n in SIZES]
    for n, found, repeated in zip(SIZES, first, again, strict=True):
        with eager_kernels(False):
            _close(found, _step(make(n), function))
        for a, b in zip(found, repeated, strict=True):
            assert np.array_equal(a.detach().numpy(), b.detach().numpy())


@pytest.mark.parametrize("name", ["linear", "layer norm", "attention", "cross-entropy"])
@pytest.mark.parametrize("needs", [0, 1, 2, 6])
def test_gradients_by_some_arguments(name: str, needs: int, shared: list[str]) -> None:
    make, function = CASES[name]
    with eager_kernels(True, least=1):
        found = [_step(make(n), function, needs) for n in SIZES]
    assert shared
    for n, values in zip(SIZES, found, strict=True):
        with eager_kernels(False):
            _close(values, _step(make(n), function, needs))


@pytest.mark.parametrize("name", ["layer norm", "attention", "gelu", "cross-entropy", "linear"])
def test_second_derivatives(name: str, shared: list[str]) -> None:
    make, function = CASES[name]

    def penalty(n: int) -> Any:
        given = [t.clone() for t in make(n)]
        x = given[0].requires_grad_()
        out = function(x * 1, *given[1:])
        (slope,) = eg.autograd.grad((out**2).sum(), x, create_graph=True)
        return eg.autograd.grad((slope**2).sum(), x)[0]

    with eager_kernels(True, least=1):
        found = [penalty(n) for n in SIZES[:11]]
    assert shared
    with eager_kernels(False):
        _close(found, [penalty(n) for n in SIZES[:11]])


def _met(function: Callable[..., Any], make: Callable[[int], list[Any]]) -> None:
    for n in SIZES[:11]:
        _step(make(n), function)


def test_results_do_not_depend_on_whether_a_shape_was_traced() -> None:
    make, function = CASES["layer norm"]
    with eager_kernels(True, least=1):
        traced = [_step(make(n), function) for n in SIZES][6:9]
        clear_composite_kernels()
        from_template = [_step(make(n), function) for n in (*SIZES[:6], *SIZES[9:], *SIZES[6:9])]
    for found, expected in zip(from_template[-3:], traced, strict=True):
        for a, b in zip(found, expected, strict=True):
            assert np.array_equal(a.detach().numpy(), b.detach().numpy())


def test_an_argument_that_is_overwritten_is_noticed(shared: list[str]) -> None:
    make, function = CASES["layer norm"]
    with eager_kernels(True, least=1):
        _met(function, make)
        x, w, b = [t.clone() for t in make(51)]
        shared.clear()
        out = function(x, w.requires_grad_() * 1, b)
        assert shared
        x.mul_(2)
        with pytest.raises(RuntimeError, match="modified"):
            out.sum().backward()


def test_residuals_are_in_the_ledger_and_are_released(shared: list[str]) -> None:
    make, function = CASES["layer norm"]
    with eager_kernels(True, least=1):
        _met(function, make)
        given = [t.clone().requires_grad_() for t in make(61)]
        gc.collect()
        before = LEDGER.live
        shared.clear()
        out = function(*[t * 1 for t in given])
        assert shared
        assert LEDGER.live - before >= 3 * out.nbytes
        out.sum().backward()
        grads = sum(t.nbytes for t in given)
        assert LEDGER.live - before == out.nbytes + grads
        with pytest.raises(RuntimeError, match="second time"):
            out.sum().backward()
        del out
        assert LEDGER.live - before == grads


def test_hooks_retained_gradients_and_no_grad(shared: list[str]) -> None:
    make, function = CASES["gelu"]
    with eager_kernels(True, least=1):
        _met(function, make)
        x = make(66)[0].requires_grad_() * 1
        seen: list[Any] = []
        shared.clear()
        out = function(x)
        assert shared
        out.retain_grad()
        out.register_hook(lambda g: seen.append(g.shape))
        out.sum().backward()
        assert seen == [out.shape] and out.grad is not None
        with eg.no_grad():
            assert not function(x).requires_grad
        with eg.inference_mode():
            assert function(x).is_inference()
        out = function(x.detach().requires_grad_() * 1)
        out.mul_(2)  # the function saved none of its results
        out.sum().backward()


@pytest.mark.parametrize("has_bias", [False, True])
def test_products_of_extents_that_happen_to_stay_the_same(has_bias: bool) -> None:
    """Traces whose batch and length differ, but not their product, say nothing of other shapes."""
    weight, bias = _data(24, 16).requires_grad_(), _data(24).requires_grad_()
    planned = [(9, 10), (11, 12), (13, 14), (15, 17), (18, 19), (20, 21)] * has_bias
    with eager_kernels(True, least=1):
        for b, t in [*planned, (10, 21), (14, 15), (6, 35), (7, 30), (9, 7), (11, 13), (5, 8)]:
            x = _data(b, t, 16).requires_grad_()
            out = F.linear(x * 1, weight, bias if has_bias else None)
            found = eg.autograd.grad((out * out).sum(), (x, weight))
            assert found[1].shape == weight.shape
            with eager_kernels(False):
                flat = x.reshape(b * t, 16) @ weight.t() + (bias if has_bias else 0)
                _close(list(found), list(eg.autograd.grad((flat * flat).sum(), (x, weight))))


def test_a_result_is_no_view_of_an_argument() -> None:
    with eager_kernels(True, least=1):
        for n in SIZES:
            x = _data(n, 40)
            for function in (F.gelu, F.silu, lambda t: F.layer_norm(t, (40,))):
                out = function(x)
                assert out.is_contiguous() and not np.shares_memory(out.numpy(), x.numpy())
