"""Custom functions under ``grad``, ``jvp``, ``vmap`` and their compositions."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

import evergrad as eg
from evergrad.core.tree import tree_leaves
from twins import agree, assert_same, cube, fixed, leaf, plain

TRANSFORMS = {
    "grad": lambda ns, f, x: ns.func.grad(lambda x: f(x).sum())(x),
    "grad of grad": lambda ns, f, x: ns.func.grad(
        lambda x: ns.func.grad(lambda x: f(x).sum())(x).sum()
    )(x),
    "vjp": lambda ns, f, x: ns.func.vjp(f, x)[1](x),
    "jvp": lambda ns, f, x: ns.func.jvp(f, (x,), (x * 2,)),
    "vmap": lambda ns, f, x: ns.func.vmap(f)(x),
    "vmap of grad": lambda ns, f, x: ns.func.vmap(ns.func.grad(f))(x),
    "grad of vmap": lambda ns, f, x: ns.func.grad(lambda x: (ns.func.vmap(f)(x) * x).sum())(x),
    "vmap of jvp": lambda ns, f, x: ns.func.vmap(lambda x: ns.func.jvp(f, (x,), (x,))[1])(x),
    "jvp of vmap": lambda ns, f, x: ns.func.jvp(ns.func.vmap(f), (x,), (x,)),
    "jvp of grad": lambda ns, f, x: ns.func.jvp(
        ns.func.grad(lambda x: (f(x) * x).sum()), (x,), (x,)
    ),
    "grad of jvp": lambda ns, f, x: ns.func.grad(lambda x: ns.func.jvp(f, (x,), (x,))[1].sum())(x),
    "jvp of jvp": lambda ns, f, x: ns.func.jvp(lambda x: ns.func.jvp(f, (x,), (x,))[1], (x,), (x,)),
    "jacrev": lambda ns, f, x: ns.func.jacrev(f)(x),
    "jacfwd": lambda ns, f, x: ns.func.jacfwd(f)(x),
    "hessian": lambda ns, f, x: ns.func.hessian(lambda x: f(x).sum())(x),
    "vmap of vmap": lambda ns, f, x: ns.func.vmap(ns.func.vmap(f))(x.reshape(1, 2)),
}


# PyTorch gives a tangent of zero there.
NO_REFERENCE = ("jvp of jvp",)


@pytest.mark.parametrize("name", [name for name in TRANSFORMS if name not in NO_REFERENCE])
def test_composes_with_transforms(name: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        return TRANSFORMS[name](ns, cube(ns, "separate").apply, fixed(ns, [1.5, -2.0]))

    agree(program, torch)


@pytest.mark.parametrize("style", ["combined", "separate"])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_both_styles_compose_as_plain_functions_do(name: str, style: str) -> None:
    """More than PyTorch offers: no ``setup_context``, ``jvp`` or ``vmap`` is needed."""
    x = fixed(eg, [1.5, -2.0])
    ours = TRANSFORMS[name](eg, cube(eg, style).apply, x)
    expected = TRANSFORMS[name](eg, lambda x: x * x * x, x)
    assert_same(plain(ours), plain(expected))
    assert not any(t.requires_grad for t in tree_leaves(ours)), "the graph inside stays inside"


@pytest.mark.parametrize("name", ["grad", "jvp", "vmap", "vmap of grad", "jacrev", "jacfwd"])
def test_transforms_use_the_users_derivative(name: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        class Straight(cube(ns, "separate")):
            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * 7

            @staticmethod
            def jvp(ctx: Any, t: Any) -> Any:
                return t * 7

        return TRANSFORMS[name](ns, Straight.apply, fixed(ns, [1.5, -2.0]))

    agree(program, torch)


def scale_with_vmap(ns: Any, calls: list[Any]) -> Any:
    class Scale(ns.autograd.Function):
        @staticmethod
        def forward(x: Any, by: Any) -> Any:
            return x * by

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, by = ctx.saved_tensors
            return g * by, (g * x).sum()

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any, by: Any) -> Any:
            calls.append((info.batch_size, in_dims))
            x_dim, by_dim = in_dims
            if x_dim is None:
                x = x.unsqueeze(0).expand(info.batch_size, *x.shape)
            else:
                x = x.movedim(x_dim, 0)
            if by_dim is not None:
                by = by.reshape(info.batch_size, *[1] * (x.dim() - 1))
            return x * by, 0

    return Scale


@pytest.mark.parametrize("in_dims", [(0, 0), (0, None), (None, 0), (1, 0)])
def test_a_vmap_rule_of_the_user(in_dims: Any, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        calls: list[Any] = []
        function = scale_with_vmap(ns, calls)
        x = fixed(ns, [[1.0, 2.0], [3.0, 4.0]]) if in_dims[0] is not None else fixed(ns, [1.0, 2.0])
        by = fixed(ns, [5.0, 6.0]) if in_dims[1] is not None else fixed(ns, 5.0)
        result = ns.func.vmap(function.apply, in_dims=in_dims)(x, by)
        return result, calls

    agree(program, torch)


def test_jvp_has_its_own_saved_values(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        class Sine(ns.autograd.Function):
            @staticmethod
            def forward(x: Any) -> Any:
                return x.sin()

            @staticmethod
            def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
                ctx.save_for_backward(inputs[0])
                ctx.save_for_forward(inputs[0], output)

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                (x,) = ctx.saved_tensors
                return g * x.cos()

            @staticmethod
            def jvp(ctx: Any, t: Any) -> Any:
                x, y = ctx.saved_tensors
                return t * x.cos() + 0 * y

        x = fixed(ns, [1.0, 2.0])
        return ns.func.jvp(Sine.apply, (x,), (x,)), ns.func.grad(lambda x: Sine.apply(x).sum())(x)

    agree(program, torch)


def test_jvp_of_arguments_that_do_not_move(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        class Product(ns.autograd.Function):
            @staticmethod
            def forward(a: Any, b: Any, scale: float) -> Any:
                return a * b * scale

            @staticmethod
            def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
                a, b, ctx.scale = inputs
                ctx.save_for_forward(a, b)

            @staticmethod
            def jvp(ctx: Any, ta: Any, tb: Any, ts: Any) -> Any:
                a, b = ctx.saved_tensors
                assert ts is None
                total = 0 * a
                if ta is not None:
                    total = total + ta * b * ctx.scale
                if tb is not None:
                    total = total + a * tb * ctx.scale
                return total

        a, b = fixed(ns, [1.0, 2.0]), fixed(ns, [3.0, 4.0])
        return ns.func.jvp(lambda a: Product.apply(a, b, 2.0), (a,), (b,))

    agree(program, torch)


def test_a_vmap_rule_is_told_of_randomness_and_may_give_unbatched_results() -> None:
    told: list[str] = []

    class Pair(eg.autograd.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x * 2, eg.ones(2, dtype=eg.float64)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any) -> Any:
            told.append(info.randomness)
            return (x * 2, eg.ones(2, dtype=eg.float64)), (in_dims[0], None)

    rows = fixed(eg, [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    twice, ones = eg.vmap(Pair.apply, in_dims=1, randomness="different")(rows)
    assert told == ["different"]
    assert twice.tolist() == (rows * 2).t().tolist()
    assert ones.tolist() == [[1.0, 1.0]] * 3


def noisy() -> Any:
    class Noisy(eg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            mask = (eg.rand(4, dtype=eg.float64) > 0.5) * 1.0
            ctx.save_for_backward(mask)
            return x * mask

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (mask,) = ctx.saved_tensors
            return g * mask

    return Noisy.apply


def test_random_numbers_inside_are_right_or_an_error() -> None:
    """A derivative that would need other draws than the value had is refused."""
    x = fixed(eg, [1.0, 2.0, 3.0, 4.0])
    grad, value = eg.func.grad_and_value(lambda x: noisy()(x).sum())(x)
    assert (grad * x).sum().item() == value.item()
    rows = eg.vmap(noisy(), randomness="different")(eg.ones(20, 4, dtype=eg.float64))
    assert len({tuple(row) for row in rows.tolist()}) > 1
    for call in (
        lambda: eg.func.jvp(noisy(), (x,), (x,)),
        lambda: eg.vmap(lambda x: eg.func.jvp(noisy(), (x,), (x,)), randomness="different")(rows),
        lambda: eg.func.grad(lambda r: eg.vmap(noisy(), randomness="different")(r).sum())(rows),
    ):
        with pytest.raises(RuntimeError, match="draws random numbers"):
            call()


def test_needs_input_grad_under_vmap() -> None:
    seen: list[Any] = []

    class Watch(eg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, scale: float) -> Any:
            seen.append(ctx.needs_input_grad)
            return x * scale

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2.0, None

    rows = leaf(eg, [[1.0], [2.0]])
    eg.vmap(lambda x: Watch.apply(x, 2.0))(rows).sum().backward()
    assert (True, False) in seen
    assert rows.grad.tolist() == [[2.0], [2.0]]
