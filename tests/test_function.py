"""Custom functions: both styles, what they save, mark and return, and how they compose."""

from __future__ import annotations

import gc
from types import ModuleType
from typing import Any

import pytest

import evergrad as eg
from evergrad.errors import GradientError, SavedValueError
from evergrad.memory.ledger import LEDGER
from twins import agree, cube, fixed, leaf, refuse

# -- the two styles -----------------------------------------------------------------------------


styles = pytest.mark.parametrize("style", ["combined", "separate"])


@styles
def test_gradients_of_every_order(style: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        function = cube(ns, style)
        x = leaf(ns, [1.0, -2.0])
        value = (function.apply(x) * x).sum()
        found = [value]
        for _ in range(3):
            (slope,) = ns.autograd.grad(value, x, create_graph=True)
            found.append(slope)
            value = slope.sum()
        return found

    agree(program, torch)


@styles
def test_the_derivative_is_the_users(style: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        class Straight(cube(ns, style)):
            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g  # as if it were x

        x = leaf(ns, [1.0, -2.0])
        Straight.apply(x * 2).sum().backward()
        return x.grad

    agree(program, torch)


def test_the_node_tells_its_name_and_carries_attributes(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        class Named(ns.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any, scale: float) -> Any:
                ctx.scale = scale
                return x * scale

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * ctx.scale, None

        y = Named.apply(leaf(ns, [1.0]), 2.5)
        (before, index), *_ = y.grad_fn.next_functions
        return y.grad_fn.name(), y.grad_fn.scale, before.name().rpartition("::")[2], index

    agree(program, torch)


# -- arguments ----------------------------------------------------------------------------------


def mixed(ns: Any) -> Any:
    class Mixed(ns.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any, scale: Any, b: Any, words: Any) -> Any:
            ctx.save_for_backward(a, b)
            ctx.scale, ctx.words = scale, words
            return a * scale + b * b

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            _, b = ctx.saved_tensors
            assert ctx.words == {"not": ["a", "tensor"]}
            needs = ctx.needs_input_grad
            assert needs[1] is False and needs[3] is False
            return (
                g * ctx.scale if needs[0] else None, None, g * 2 * b if needs[2] else None, None,
            )  # fmt: skip

    return Mixed


@pytest.mark.parametrize("asking", ["ab", "a", "b", ""])
def test_arguments_that_are_no_tensors(asking: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        a = (leaf if "a" in asking else fixed)(ns, [1.0, 2.0])
        b = (leaf if "b" in asking else fixed)(ns, [3.0, 4.0])
        y = mixed(ns).apply(a, 2.5, b, {"not": ["a", "tensor"]})
        if asking:
            y.sum().backward()
        return y, y.requires_grad, a.grad, b.grad

    agree(program, torch)


def test_needs_input_grad(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        seen: list[Any] = []

        class Watch(ns.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *args: Any) -> Any:
                seen.append(ctx.needs_input_grad)
                return args[0] * 1

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                seen.append(ctx.needs_input_grad)
                return g, None, None

        x = leaf(ns, [1.0])
        Watch.apply(x, fixed(ns, [1.0]), 3).sum().backward()
        with ns.no_grad():
            Watch.apply(x, x, None)
        return seen

    agree(program, torch)


def test_defaults_and_keywords_of_the_separate_style(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        class Scaled(ns.autograd.Function):
            @staticmethod
            def forward(x: Any, scale: float = 2.0, shift: float = 1.0) -> Any:
                return x * scale + shift

            @staticmethod
            def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
                _, ctx.scale, ctx.shift = inputs

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * ctx.scale, None, None

        x = leaf(ns, [1.0, 2.0])
        results = [Scaled.apply(x), Scaled.apply(x, 3.0), Scaled.apply(x, shift=5.0)]
        sum(r.sum() for r in results).backward()
        return results, x.grad

    agree(program, torch)


def test_the_same_tensor_twice(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        class Product(ns.autograd.Function):
            @staticmethod
            def forward(ctx: Any, a: Any, b: Any) -> Any:
                ctx.save_for_backward(a, b)
                return a * b

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                a, b = ctx.saved_tensors
                return g * b, g * a

        x = leaf(ns, [2.0, 3.0])
        (first,) = ns.autograd.grad(Product.apply(x, x).sum(), x, create_graph=True)
        return first, ns.autograd.grad(first.sum(), x)

    agree(program, torch)


# -- results ------------------------------------------------------------------------------------


def split(ns: Any, materialize: bool = True) -> Any:
    class Split(ns.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            ctx.set_materialize_grads(materialize)
            signs = x.sign()
            ctx.mark_non_differentiable(signs)
            return x.sin(), signs, x * 2, "a word"

        @staticmethod
        def backward(ctx: Any, g_sin: Any, g_sign: Any, g_twice: Any, g_word: Any) -> Any:
            (x,) = ctx.saved_tensors
            ctx.seen = [g is None for g in (g_sin, g_sign, g_twice)]
            total = x * 0
            if g_sin is not None:
                total = total + g_sin * x.cos()
            if g_twice is not None:
                total = total + g_twice * 2
            return total

    return Split


@pytest.mark.parametrize("materialize", [True, False])
@pytest.mark.parametrize("used", [(0,), (2,), (0, 2)])
def test_several_results(materialize: bool, used: Any, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, -2.0])
        results = split(ns, materialize).apply(x)
        told = [(r.requires_grad, r.is_leaf) for r in results[:3]]
        node = results[0].grad_fn
        sum((results[i] * (i + 1)).sum() for i in used).backward()
        return told, results, x.grad, node.seen

    agree(program, torch)


def test_an_input_returned_unchanged(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        class Doubled(ns.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * 2

        x = leaf(ns, [1.0, 2.0])
        y = Doubled.apply(x)
        told = y is x, y.data_ptr() == x.data_ptr()
        y.sum().backward()
        return told, x.grad

    agree(program, torch)


def test_integer_results_have_no_history(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        class Places(ns.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x.argmax(), x * 1

            @staticmethod
            def backward(ctx: Any, g_place: Any, g: Any) -> Any:
                return g

        place, y = Places.apply(leaf(ns, [1.0, 5.0]))
        return place, place.requires_grad, y.requires_grad

    agree(program, torch)


# -- what is saved ------------------------------------------------------------------------------


def saving(ns: Any) -> Any:
    class Saving(ns.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            between = x * x
            result = between.exp()
            ctx.save_for_backward(x, between, None, result)
            return result

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, between, nothing, result = ctx.saved_tensors
            assert nothing is None
            return g * result * 2 * x + 0 * between

    return Saving


def test_inputs_outputs_and_what_is_between(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [0.5, -1.0])
        y = saving(ns).apply(x)
        (first,) = ns.autograd.grad(y.sum(), x, create_graph=True)
        return first, ns.autograd.grad(first.sum(), x)

    agree(program, torch)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_nothing_is_left_behind_without_the_collector(order: int) -> None:
    gc.collect()
    gc.disable()
    try:
        before = LEDGER.live, LEDGER.count
        x = leaf(eg, [0.5, -1.0])
        value = saving(eg).apply(x).sum()
        for _ in range(order):
            (slope,) = eg.autograd.grad(value, x, create_graph=True)
            value = slope.sum()
            del slope
        del x, value
        assert (LEDGER.live, LEDGER.count) == before
    finally:
        gc.enable()


def test_saved_values_are_released_after_backward() -> None:
    x = leaf(eg, [0.5, -1.0])
    y = saving(eg).apply(x)
    y.sum().backward()
    with pytest.raises(GradientError, match="second time"):
        y.sum().backward()
    y = saving(eg).apply(x)
    y.sum().backward(retain_graph=True)
    y.sum().backward()


def test_an_overwritten_saved_value_is_an_error() -> None:
    x = leaf(eg, [0.5, -1.0])
    y = saving(eg).apply(x)
    y.data.zero_()
    with pytest.raises(SavedValueError, match="SavingBackward") as error:
        y.sum().backward()
    assert "y = saving(eg).apply(x)" in str(error.value)
    assert "y.data.zero_()" in str(error.value)


def test_saved_values_pass_through_hooks(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        packed: list[Any] = []

        def pack(tensor: Any) -> Any:
            packed.append(tensor.detach().tolist())
            return tensor.detach() + 0

        x = leaf(ns, [0.5, -1.0])
        with ns.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            y = saving(ns).apply(x)
        y.sum().backward()
        return packed, x.grad

    agree(program, torch)


def test_only_tensors_are_saved(torch: ModuleType) -> None:
    def program(ns: Any) -> None:
        class Wrong(ns.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x, 3)
                return x * 1

        Wrong.apply(leaf(ns, [1.0]))

    refuse(program, torch, match="save_for_backward can only save")


# -- in place -----------------------------------------------------------------------------------


def in_place(ns: Any) -> Any:
    class Scale(ns.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, by: float) -> Any:
            ctx.by = by
            x.mul_(by)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.by, None

    return Scale


def test_dirty_inputs(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        y = x * 3
        same = in_place(ns).apply(y, 5.0)
        told = same is y, y.grad_fn.name(), y._version
        (y * y).sum().backward()
        return told, y, x.grad

    agree(program, torch)


def test_a_dirty_input_may_be_saved(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        class Exponential(ns.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                x.exp_()
                ctx.mark_dirty(x)
                ctx.save_for_backward(x)
                return x

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                (y,) = ctx.saved_tensors
                return g * y

        x = leaf(ns, [1.0, 2.0])
        y = Exponential.apply(x * 2)
        (first,) = ns.autograd.grad(y.sum(), x, create_graph=True)
        return first, ns.autograd.grad(first.sum(), x)

    agree(program, torch)


def test_dirty_views_change_their_base(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [[1.0, 2.0], [3.0, 4.0]])
        y = x * 3
        in_place(ns).apply(y[0], 5.0)
        (y * y).sum().backward()
        return y, x.grad

    agree(program, torch)


def test_a_dirty_leaf_is_refused(torch: ModuleType) -> None:
    refuse(lambda ns: in_place(ns).apply(leaf(ns, [1.0]), 2.0), torch, match="leaf")


def test_writes_past_the_derivative_are_refused(torch: ModuleType) -> None:
    """To an input that was returned as it is, and to a view made inside."""

    def write(ns: Any, result: Any) -> None:
        class Given(ns.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return result(x)

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g.reshape(2)

        Given.apply(leaf(ns, [1.0, 2.0]) * 1).mul_(2)

    refuse(lambda ns: write(ns, lambda x: x), torch)
    refuse(lambda ns: write(ns, lambda x: x.view(2, 1)), torch)


# -- once ---------------------------------------------------------------------------------------


def once(ns: Any) -> Any:
    decorate = ns.autograd.function.once_differentiable

    class Once(ns.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @decorate
        def backward(ctx: Any, g: Any) -> Any:
            assert not ns.is_grad_enabled()
            (x,) = ctx.saved_tensors
            return g * 2 * x

    return Once


def test_once_differentiable(torch: ModuleType) -> None:
    def first(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        once(ns).apply(x).sum().backward()
        return x.grad

    def second(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        (slope,) = ns.autograd.grad(once(ns).apply(x).sum(), x, create_graph=True)
        return ns.autograd.grad(slope.sum(), x)

    agree(first, torch)
    refuse(second, torch, match="once_differentiable")


# -- wrong gradients ----------------------------------------------------------------------------

WRONG = {
    "too few": lambda ns, g: (g,),
    "too many": lambda ns, g: (g, g, g),
    "another shape": lambda ns, g: (g.sum(), g),
    "no tensor": lambda ns, g: ("a", g),
}


@pytest.mark.parametrize("name", WRONG)
def test_gradients_that_do_not_fit(name: str, torch: ModuleType) -> None:
    def program(ns: Any) -> None:
        class Wrong(ns.autograd.Function):
            @staticmethod
            def forward(ctx: Any, a: Any, b: Any) -> Any:
                return a + b

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return WRONG[name](ns, g)

        Wrong.apply(leaf(ns, [1.0, 2.0]), leaf(ns, [1.0, 2.0])).sum().backward()

    if name == "another shape":  # PyTorch expands it; the gradient of a part is no gradient
        with pytest.raises(RuntimeError, match="invalid gradient at index 0"):
            program(eg)
    else:
        refuse(program, torch)


def test_gradients_of_broadcast_arguments_are_summed(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        class Add(ns.autograd.Function):
            @staticmethod
            def forward(ctx: Any, a: Any, b: Any) -> Any:
                return a + b

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g, g

        a, b = leaf(ns, [[1.0, 2.0], [3.0, 4.0]]), leaf(ns, [5.0, 6.0])
        Add.apply(a, b).sum().backward()
        return a.grad, b.grad

    agree(program, torch)


def test_extra_nones_are_no_mistake(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        class Extra(ns.autograd.Function):
            @staticmethod
            def forward(ctx: Any, a: Any) -> Any:
                return a * 2

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * 2, None, None

        x = leaf(ns, [1.0])
        Extra.apply(x).sum().backward()
        return x.grad

    agree(program, torch)


def test_missing_parts_are_named() -> None:
    class Empty(eg.autograd.Function):
        pass

    with pytest.raises(NotImplementedError, match="forward"):
        Empty.apply(leaf(eg, [1.0]))

    class Half(eg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

    with pytest.raises(NotImplementedError, match="backward"):
        Half.apply(leaf(eg, [1.0])).sum().backward()
    x = fixed(eg, [1.0])
    with pytest.raises(NotImplementedError, match="backward"):
        eg.func.jvp(Half.apply, (x,), (x,))


def test_vjp_is_another_name_of_backward(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        class Twice(ns.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x * 2

            @staticmethod
            def vjp(ctx: Any, g: Any) -> Any:
                return g * 2

        x = leaf(ns, [1.0])
        Twice.apply(x).sum().backward()
        return x.grad

    agree(program, torch)


def test_keywords_of_the_combined_style(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        cube(ns, "combined").apply(x=x).sum().backward()
        return x.grad

    agree(program, torch)
