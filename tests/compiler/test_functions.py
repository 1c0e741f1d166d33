"""Compiled functions and modules as values: arguments, results, derivatives, copies."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import func, nn
from twins import cube

from .steps import assert_alike, program_count, randn

# -- arguments and results ------------------------------------------------------------------------


def test_nested_arguments_and_results() -> None:
    def function(given: Any, *, more: Any) -> Any:
        total = given["x"] + more[0]
        return {"a": (total, [given["y"], "text", None, 3]), "b": given["n"] * 2.5}

    compiled = eg.compile(function)
    for number in (4.0, 5.0):
        given = {"x": randn(2), "y": randn(3), "n": number}
        more = (randn(2, seed=1),)
        assert_alike(compiled(given, more=more), function(given, more=more))
    assert program_count(compiled) == 2  # floats inside of containers are constants
    assert_alike(compiled(given, more=more), function(given, more=more))
    assert program_count(compiled) == 2


def test_integers_and_strings_are_constants() -> None:
    compiled = eg.compile(lambda x, n, mode="sum": x.sum() * n if mode == "sum" else x * n)
    x = randn(3)
    assert_alike(compiled(x, 2), x.sum() * 2)
    assert_alike(compiled(x, 2, mode="all"), x * 2)
    assert_alike(compiled(x, 3, mode="all"), x * 3)
    assert program_count(compiled) == 3
    assert compiled(eg.tensor([1, 2]), 1, "all").dtype == eg.int64
    assert compiled(eg.tensor([1, 2]), True, "all").dtype == eg.int64
    assert compiled(eg.tensor([1, 2]), 1.0, "all").dtype == eg.float32


NUMBERS: dict[str, Callable[[Any, float], Any]] = {
    "add": lambda x, a: x.add(x, alpha=a),
    "lerp": lambda x, a: x.lerp(x * 2, a),
    "clamp": lambda x, a: x.clamp(min=a),
    "where": lambda x, a: eg.where(x > 0, x, a),
    "greater": lambda x, a: x > a,
    "less": lambda x, a: a < x,
    "power": lambda x, a: x.abs() ** a,
    "base": lambda x, a: a**x,
    "divisor": lambda x, a: x / a,
    "dividend": lambda x, a: a / x,
    "in place": lambda x, a: _scaled(x.clone(), a),
    "fill": lambda x, a: x.clone().fill_(a),
    "full": lambda x, a: eg.full((3,), a),
    "full_like": lambda x, a: eg.full_like(x, a),
    "tensor": lambda x, a: eg.tensor(a),
    "masked_fill": lambda x, a: x.masked_fill(x > 0, a),
    "addcmul": lambda x, a: x.addcmul(x, x, value=a),
    "leaky_relu": lambda x, a: nn.functional.leaky_relu(x, a),
    "negative": lambda x, a: x * -a,
    "arithmetic": lambda x, a: (2.0 - a) * (a + 1) / (3 * a) ** 0.5,
}


def _scaled(x: Any, a: float) -> Any:
    x *= a
    x -= a
    return x


@pytest.mark.parametrize("name", NUMBERS)
def test_floats_are_read_at_run_time(name: str) -> None:
    function = NUMBERS[name]
    compiled = eg.compile(function)
    for number in (0.3, 1.5):
        expected = function(randn(3), number)
        found = compiled(randn(3), number)
        assert type(found) is type(expected)
        assert_alike(found, expected)
    assert program_count(compiled) == 1


@pytest.mark.parametrize(
    "read", [float, bool, int, abs, round, lambda a: a > 0, lambda a: max(a, 1.0), lambda a: a // 2]
)
def test_python_reads_the_value_of_a_float(read: Callable[[Any], Any]) -> None:
    """What was read is guarded on: another value is another program, where it decides another."""

    def function(x: Any, a: float) -> Any:
        return x * read(a)

    compiled = eg.compile(function, fullgraph=True)
    for number in (1.5, 0.5, -2.5, 1.5, 0.5):
        assert_alike(compiled(randn(3), number), function(randn(3), number))
        assert compiled.last_call.kind == "whole"
    assert program_count(compiled) <= 3


def test_arguments_that_are_arrays() -> None:
    """They are compared by their elements, and by identity."""

    def function(x: Any, n: Any) -> Any:
        return x * float(n[0]) + eg.tensor(n)

    compiled, x, n = eg.compile(function), randn(3), np.ones(3)
    for factor in (1.0, 2.0, 2.0, 3.0):
        n[0] = factor
        assert_alike(compiled(x, n), function(x, n))
        assert_alike(compiled(x, n.copy()), function(x, n))


@pytest.mark.parametrize("kind", [eg.float32, eg.float64])
def test_numbers_that_are_none(kind: Any) -> None:
    """NaN, infinities, zeros of both signs, and numbers at both ends of the range."""
    special = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-310, 1e308]
    x = eg.tensor(special, dtype=kind)
    functions: list[Callable[[Any], Any]] = [
        eg.amax, lambda x: x[1:].amin(), eg.relu, eg.exp, eg.log, eg.tanh, eg.sigmoid, eg.sign,
        lambda x: x[3:].softmax(0), lambda x: x.clamp(-1, 1), lambda x: eg.maximum(x, -x),
        eg.sqrt, eg.reciprocal, eg.rsqrt, eg.round, eg.floor, eg.abs, eg.erf, eg.sin, eg.expm1,
        lambda x: x == x, lambda x: eg.where(x > 0, x, 0), nn.functional.gelu,
    ]  # fmt: skip
    compiled = eg.compile(lambda x: [f(x) for f in functions])
    flushed = float(eg.finfo(kind).smallest_normal)  # kernels give zero for results below this
    for f, found in zip(functions, compiled(x), strict=True):
        np.testing.assert_allclose(found.numpy(), f(x).numpy(), rtol=1e-6, atol=flushed)


SMALL_TYPES: dict[str, Callable[[Any], Any]] = {
    "chain": lambda x: (x * 0.3 + 1.7) * x, "row": lambda x: x.sum(1, True) * x,
    "sum": lambda x: x.sum() * 3, "full": lambda x: eg.full_like(x, 0.3) * x + 0.1,
    "largest": lambda x: (x - x.amax(0)).exp(), "mean": lambda x: x.mean(0) / 3,
    "softmax": lambda x: x.softmax(1), "norm": lambda x: nn.functional.layer_norm(x, (8,)),
    "product": lambda x: x @ x.t(), "square": lambda x: x**2 + x,
}  # fmt: skip


@pytest.mark.parametrize("kind", [eg.bfloat16, eg.float16])
@pytest.mark.parametrize("name", SMALL_TYPES)
def test_types_of_16_bits_round_after_every_op(name: str, kind: Any) -> None:
    def function(x: Any) -> Any:
        return SMALL_TYPES[name](x.to(kind)).float()

    x = randn(6, 8).float()
    np.testing.assert_array_equal(eg.compile(function)(x).numpy(), function(x).numpy())


def test_layouts_of_arguments() -> None:
    def function(x: Any) -> Any:
        return (x * 2 + x.sum(0)).exp(), x.t().reshape(-1), x.max(1).values

    compiled, base = eg.compile(function), randn(6, 4)
    for x in (
        base, base.t().contiguous().t(), base[::2], base[1:, 1:], base.t(), base.flip(0),
        base[:, None].expand(6, 3, 4)[:, 1], base[:, :1].expand(6, 4), base[0].expand(5, 4),
    ):  # fmt: skip
        assert_alike(compiled(x), function(x))


def test_arguments_of_no_and_one_element() -> None:
    def function(x: Any) -> Any:
        return (x * 2).sum(), x.exp(), x.t() @ x, x.reshape(-1)

    compiled = eg.compile(function)
    for shape in ((0, 3), (3, 0), (0, 0), (1, 1)):
        assert_alike(compiled(randn(*shape)), function(randn(*shape)))


def test_no_arguments() -> None:
    weight = randn(3)
    compiled = eg.compile(lambda: weight * 2)
    assert_alike(compiled(), weight * 2)
    weight.add_(1)
    assert_alike(compiled(), weight * 2)


def test_arguments_that_are_written() -> None:
    def function(x: Any) -> Any:
        return x.mul_(2).sum()

    for view in (lambda t: t, lambda t: t.t()[1], lambda t: t[:, 1:]):
        compiled = eg.compile(function)
        ours, theirs = randn(4, 3), randn(4, 3)
        for _ in range(3):
            assert_alike(compiled(view(ours)), function(view(theirs)))
            assert_alike(ours, theirs)
            assert compiled.last_call.kind == "whole"


@pytest.mark.parametrize("parts", [lambda t: (t, t), lambda t: (t[:3], t[1:])])
def test_arguments_that_share_memory(parts: Callable[[Any], Any]) -> None:
    def function(x: Any, y: Any) -> Any:
        x.add_(1)
        return x * y

    compiled = eg.compile(function)
    compiled(randn(4), randn(4))
    assert compiled.last_call.kind == "whole"
    ours, theirs = randn(4), randn(4)
    for _ in range(3):
        assert_alike(compiled(*parts(ours)), function(*parts(theirs)))
        assert_alike(ours, theirs)
        assert compiled.last_call.kind == "whole"


def test_an_argument_that_is_written_from_outside() -> None:
    def make(weight: Any) -> Callable[[Any], Any]:
        def function(x: Any) -> Any:
            with eg.no_grad():
                weight.mul_(2)
            return x + weight.detach()

        return function

    ours, theirs = nn.Parameter(randn(3)), nn.Parameter(randn(3))
    compiled, eager = eg.compile(make(ours)), make(theirs)
    for view in (lambda t: randn(3, seed=1), lambda t: t.detach(), lambda t: t):
        assert_alike(compiled(view(ours)), eager(view(theirs)))
        assert_alike(ours, theirs)


def test_as_a_decorator() -> None:
    @eg.compile(fullgraph=True, mode="max-autotune", dynamic=False)
    def function(x: Any) -> Any:
        """Its text."""
        return x + 1

    assert function.__name__ == "function" and function.__doc__ == "Its text."
    assert_alike(function(randn(2)), randn(2) + 1)


def test_as_a_method() -> None:
    class Model:
        def __init__(self, seed: int) -> None:
            self.weight = randn(2, seed=seed)

        @eg.compile
        def apply(self, x: Any) -> Any:
            return x + self.weight

    for model in (Model(1), Model(2)):
        assert_alike(model.apply(randn(2)), randn(2) + model.weight)


# -- derivatives ----------------------------------------------------------------------------------


def wave(x: Any) -> Any:
    return (x.sin() * x).sum()


@pytest.mark.parametrize(
    "transform",
    [
        func.grad, func.hessian, func.jacrev, func.vmap,
        lambda f: lambda x: func.jvp(f, (x,), (x * 2,)),
        lambda f: lambda x: func.vmap(func.grad(f))(x.expand(3, *x.shape)),
        lambda f: lambda x: eg.autograd.functional.hessian(f, x),
    ],
)  # fmt: skip
def test_transforms_around_and_inside(transform: Any) -> None:
    x = randn(3, 2) if transform is func.vmap else randn(3)
    expected = transform(wave)(x)
    assert_alike(transform(eg.compile(wave))(x), expected)
    assert_alike(eg.compile(transform(wave))(x), expected)


def test_gradients_from_outside() -> None:
    layer = nn.Linear(3, 2).double()

    def function(x: Any, y: Any) -> Any:
        return layer(x).tanh() * y, x.detach() * 3, x.argmax()

    compiled = eg.compile(function)
    x, y = randn(4, 3).requires_grad_(), randn(4, 2, seed=1).requires_grad_()
    wanted = [x, y, *layer.parameters()]
    for order in (1, 2):
        gradients = []
        for f in (compiled, function):
            out = f(x, y)[0].square().sum()
            found = eg.autograd.grad(out, wanted, create_graph=order > 1)
            if order > 1:
                found = eg.autograd.grad(sum((g * g).sum() for g in found), wanted)
            gradients.append(found)
        assert_alike(*gradients)
    assert [r.requires_grad for r in compiled(x, y)] == [True, False, False]


def test_a_graph_is_used_once() -> None:
    x = randn(3).requires_grad_()
    y = eg.compile(wave)(x)
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_an_overwritten_input_is_noticed() -> None:
    x, weight = randn(3).requires_grad_(), randn(3)
    y = eg.compile(lambda x: (x * weight).sum())(x)
    weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        y.backward()


@pytest.mark.parametrize("style", ["combined", "separate"])
def test_functions_with_their_own_derivative(style: str) -> None:
    own = cube(eg, style)
    x = randn(3).requires_grad_()
    (expected,) = eg.autograd.grad(own.apply(x).sin().sum(), x)
    compiled = eg.compile(lambda x: own.apply(x).sin().sum())
    assert_alike(eg.autograd.grad(compiled(x), x), (expected,))
    inside = eg.compile(lambda x: eg.autograd.grad(own.apply(x).sin().sum(), x)[0])
    assert_alike(inside(x), expected)


def test_compiled_functions_inside_each_other() -> None:
    inner = eg.compile(lambda x: x.sin())
    outer = eg.compile(lambda x: (inner(x) * inner(x * 2)).sum())
    x = randn(3).requires_grad_()
    outer(x).backward()
    assert_alike(x.grad, x.cos() * (2 * x).sin() + 2 * x.sin() * (2 * x).cos())


# -- modules and copies ---------------------------------------------------------------------------


def test_a_compiled_module_is_a_module() -> None:
    module = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5)).double()
    compiled = eg.compile(module)
    assert isinstance(compiled, nn.Module)
    assert list(compiled.parameters()) == list(module.parameters())
    assert [k.removeprefix("_orig_mod.") for k in compiled.state_dict()] == [*module.state_dict()]
    compiled.eval()
    assert not module.training
    x = randn(4, 3)
    assert_alike(compiled(x), module(x))
    module.load_state_dict({k: v * 2 for k, v in module.state_dict().items()})
    assert_alike(compiled(x), module(x))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_of_what_was_compiled(copied: Callable[[Any], Any]) -> None:
    module = nn.Linear(3, 2).double()
    compiled = eg.compile(module)
    x = randn(4, 3)
    expected = compiled(x)
    for original in (module, compiled):
        other = copied(original)
        assert_alike(other(x), expected)
        with eg.no_grad():
            other.weight.zero_()
        assert_alike(compiled(x), expected)
        assert_alike(other(x), module.bias.expand(4, 2))
