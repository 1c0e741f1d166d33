"""Custom functions under ``grad``, ``jvp``, ``vmap`` and their compositions."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

import evergrad as eg
from evergrad.core.tree import tree_leaves
from twins import agree, assert_same, cube, fixed, plain

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
