"""Hooks on gradients, on nodes and on several tensors at once; backward inside backward."""

from __future__ import annotations

import gc
from types import ModuleType
from typing import Any

import pytest

import evergrad as eg
from evergrad.memory.ledger import LEDGER
from twins import agree, fixed, leaf, refuse

# -- on the gradient of a tensor ----------------------------------------------------------------


def test_a_hook_sees_the_gradient_and_may_replace_it(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        seen: list[Any] = []
        y = x * 3
        y.register_hook(lambda g: seen.append(g.clone()))
        y.register_hook(lambda g: g * 10)
        y.register_hook(lambda g: seen.append(g.clone()))
        (y * y).sum().backward()
        return seen, x.grad

    agree(program, torch)


def test_a_hook_on_a_leaf_runs_once_with_the_whole_gradient(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        seen: list[Any] = []
        x.register_hook(lambda g: seen.append(g.clone()))
        x.register_hook(lambda g: -g)
        (x * x + x.exp() * 2 + x).sum().backward()
        first = x.grad.clone()
        (x * 2).sum().backward()
        return seen, first, x.grad

    agree(program, torch)


def test_hooks_run_in_the_order_they_were_registered(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0])
        order: list[str] = []
        y = x * 2
        z = y * 3
        for name, tensor in (("x1", x), ("z1", z), ("y1", y), ("y2", y), ("x2", x), ("z2", z)):
            tensor.register_hook(lambda g, name=name: order.append(name))
        x.register_post_accumulate_grad_hook(lambda p: order.append("accumulated"))
        z.sum().backward()
        return order

    agree(program, torch)


def test_removed_hooks_do_not_run(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0])
        seen: list[str] = []
        first = x.register_hook(lambda g: seen.append("first"))
        x.register_hook(lambda g: seen.append("second"))
        first.remove()
        first.remove()
        with x.register_hook(lambda g: seen.append("within")):
            (x * 1).sum().backward()
        (x * 1).sum().backward()
        return seen

    agree(program, torch)


def test_a_hook_may_remove_itself(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0])
        seen: list[int] = []

        def once(g: Any) -> None:
            seen.append(1)
            handle.remove()

        handle = x.register_hook(once)
        x.register_hook(lambda g: seen.append(2))
        for _ in range(2):
            (x * 1).sum().backward()
        return seen

    agree(program, torch)


def test_hooks_with_grad(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        y = x * 3
        y.register_hook(lambda g: g * 2)
        x.register_hook(lambda g: g + 1)
        loss = (y * y).sum()
        return [ns.autograd.grad(loss, t, retain_graph=True) for t in (x, y)]

    agree(program, torch)


def test_hooks_take_part_in_second_derivatives(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        y = x * x
        y.register_hook(lambda g: g * g)
        (first,) = ns.autograd.grad((y * y).sum(), x, create_graph=True)
        return first, ns.autograd.grad(first.sum(), x)

    agree(program, torch)


def test_gradients_are_recorded_in_hooks_only_when_they_are_outside(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        modes: list[bool] = []
        y = x * x
        y.register_hook(lambda g: modes.append(ns.is_grad_enabled()))
        ns.autograd.grad(y.sum(), x, retain_graph=True)
        ns.autograd.grad(y.sum(), x, create_graph=True)
        return modes

    agree(program, torch)


def test_writing_to_the_gradient_in_a_hook_reaches_nothing_else() -> None:
    """Both terms of a sum get the same gradient, and each must have its own."""
    for create_graph in (False, True):
        x, w = leaf(eg, [1.0, 2.0]), leaf(eg, [1.0, 2.0])
        y, z = x * 1, w * 1
        y.register_hook(lambda g: g.mul_(100))
        total = (y + z).sum()
        gx, gw = eg.autograd.grad(total, [x, w], create_graph=create_graph)
        assert gx.tolist() == [100.0, 100.0]
        assert gw.tolist() == [1.0, 1.0]


def test_a_gradient_kept_by_a_hook_stays_as_it_was() -> None:
    x = leaf(eg, [1.0, 2.0])
    kept: list[Any] = []
    x.register_hook(kept.append)
    (x * 2).sum().backward()
    (x * 3).sum().backward()
    x.grad.zero_()
    assert [g.tolist() for g in kept] == [[2.0, 2.0], [3.0, 3.0]]


BAD_HOOKS = {
    "no tensor": lambda ns, g: 3,
    "another shape": lambda ns, g: ns.ones(5, dtype=ns.float64),
    "a shape that would broadcast": lambda ns, g: ns.ones(1, dtype=ns.float64),
    "another dtype": lambda ns, g: g.float(),
}


@pytest.mark.parametrize("name", BAD_HOOKS)
def test_a_hook_must_return_a_gradient_that_fits(name: str, torch: ModuleType) -> None:
    def program(ns: Any) -> None:
        y = leaf(ns, [1.0, 2.0]) * 2
        y.register_hook(lambda g: BAD_HOOKS[name](ns, g))
        y.sum().backward()

    refuse(program, torch, match="hook")


REFUSED = {
    "on what asks for no gradient": lambda ns: fixed(ns, [1.0]).register_hook(print),
    "after accumulation, without a gradient": lambda ns: fixed(
        ns, [1.0]
    ).register_post_accumulate_grad_hook(print),
    "after accumulation, on a result": lambda ns: (
        leaf(ns, [1.0]) * 2
    ).register_post_accumulate_grad_hook(print),
}


@pytest.mark.parametrize("name", REFUSED)
def test_hooks_that_could_never_run_are_refused(name: str, torch: ModuleType) -> None:
    refuse(REFUSED[name], torch)


def test_an_error_in_a_hook_comes_out() -> None:
    x = leaf(eg, [1.0])

    def fails(g: Any) -> None:
        raise KeyError("mine")

    y = x * 2
    y.register_hook(fails)
    gc.collect()
    live = LEDGER.live
    with pytest.raises(KeyError, match="mine"):
        y.sum().backward()
    assert x.grad is None
    gc.collect()
    assert LEDGER.live == live


# -- after accumulation -------------------------------------------------------------------------


def test_post_accumulate_hooks_see_the_sum(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        seen: list[Any] = []
        handle = x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
        x.register_post_accumulate_grad_hook(lambda p: seen.append(p is x))
        for _ in range(2):
            (x * x + x).sum().backward()
        handle.remove()
        (x * 2).sum().backward()
        return seen

    agree(program, torch)


def test_a_step_inside_backward(torch: ModuleType) -> None:
    """The parameter is updated and its gradient dropped as soon as it is known."""

    def program(ns: Any) -> Any:
        def step(p: Any) -> None:
            with ns.no_grad():
                p.sub_(0.1 * p.grad)
            p.grad = None

        x, w = leaf(ns, [1.0, 2.0]), leaf(ns, [3.0, 4.0])
        for p in (x, w):
            p.register_post_accumulate_grad_hook(step)
        for _ in range(3):
            (x * x + w.sin()).sum().backward()
        return x, w, x.grad, w.grad

    agree(program, torch)


@pytest.mark.parametrize("compiled", [False, True])
def test_post_accumulate_hooks_return_nothing(torch: ModuleType, compiled: bool) -> None:
    for lib in (eg, torch):
        x = lib.ones(2, requires_grad=True)
        x.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(0.5))

        def step(x: Any = x) -> None:
            (x * 3).sum().backward()

        run = eg.compile(step) if compiled and lib is eg else step
        with pytest.raises(RuntimeError, match="post accumulate grad hooks should return None"):
            run()
        assert x.grad.tolist() == [1.5, 1.5]


def test_post_accumulate_hooks_do_not_run_for_grad(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        seen: list[int] = []
        x.register_post_accumulate_grad_hook(lambda p: seen.append(1))
        ns.autograd.grad((x * x).sum(), x)
        (x * x).sum().backward(inputs=[x])
        return seen, x.grad

    agree(program, torch)


# -- on nodes -----------------------------------------------------------------------------------


def test_node_hooks_see_and_replace_what_goes_in_and_out(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x, w = leaf(ns, [1.0, 2.0]), leaf(ns, [3.0, 4.0])
        seen: list[Any] = []
        y = x * w
        node = y.grad_fn
        node.register_prehook(lambda outs: seen.append(("pre", [o.clone() for o in outs])))
        node.register_prehook(lambda outs: (outs[0] * 2,))

        def after(ins: Any, outs: Any) -> Any:
            seen.append(("post", [i.clone() for i in ins], [o.clone() for o in outs]))
            return ins[0] + 1, ins[1] * 0

        node.register_hook(after)
        y.sum().backward()
        return seen, x.grad, w.grad

    agree(program, torch)


def test_node_hooks_can_be_removed(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        y = x.exp()
        before = y.grad_fn.register_prehook(lambda outs: (outs[0] * 2,))
        after = y.grad_fn.register_hook(lambda ins, outs: (ins[0] * 5,))
        y.sum().backward(retain_graph=True)
        before.remove()
        y.sum().backward(retain_graph=True)
        after.remove()
        y.sum().backward()
        return x.grad

    agree(program, torch)


def test_tensor_hooks_come_before_node_hooks(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0])
        order: list[str] = []
        y = x * 2
        y.grad_fn.register_hook(lambda ins, outs: order.append("node"))
        y.register_hook(lambda g: order.append("tensor"))
        y.sum().backward()
        return order

    agree(program, torch)


def test_hooks_on_the_end_of_a_graph(torch: ModuleType) -> None:
    """The node of a leaf: before and after its gradient is accumulated."""

    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        y = x * 3
        end = y.grad_fn.next_functions[0][0]
        seen: list[Any] = []
        end.register_prehook(lambda outs: (outs[0] * 2,))
        end.register_hook(
            lambda ins, outs: seen.append((len(ins), outs[0].clone(), x.grad.clone()))
        )
        y.sum().backward()
        return seen, x.grad

    agree(program, torch)


def test_node_hooks_must_return_as_many_gradients() -> None:
    y = leaf(eg, [1.0]) * leaf(eg, [2.0])
    y.grad_fn.register_hook(lambda ins, outs: ins[:1])
    with pytest.raises(RuntimeError, match="returned 1 gradients; it was given 2"):
        y.sum().backward()


# -- on several tensors -------------------------------------------------------------------------


def test_multi_grad_hook_waits_for_all(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        a, b, c = (leaf(ns, [v]) for v in (1.0, 2.0, 3.0))
        seen: list[Any] = []
        ns.autograd.graph.register_multi_grad_hook(
            (a, b, c), lambda grads: seen.append([None if g is None else g.clone() for g in grads])
        )
        (a * b).sum().backward()  # c takes no part
        (a * b * c).sum().backward()
        c.sum().backward()
        (a * 2).sum().backward()
        return seen

    agree(program, torch)


def test_multi_grad_hook_for_any(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        a, b = leaf(ns, [1.0]), leaf(ns, [2.0])
        seen: list[int] = []
        handle = ns.autograd.graph.register_multi_grad_hook(
            (a, b), lambda grad: seen.append(1), mode="any"
        )
        (a * b).sum().backward()
        b.sum().backward()
        handle.remove()
        (a * b).sum().backward()
        return seen

    agree(program, torch)


def test_multi_grad_hook_between(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        y, z = x * 2, x.exp()
        seen: list[Any] = []
        with ns.autograd.graph.register_multi_grad_hook(
            (y, z), lambda grads: seen.append([g.clone() for g in grads])
        ):
            (y * z).sum().backward(retain_graph=True)
        (y * z).sum().backward()
        return seen

    agree(program, torch)


def test_multi_grad_hook_modes(torch: ModuleType) -> None:
    refuse(
        lambda ns: ns.autograd.graph.register_multi_grad_hook([leaf(ns, [1.0])], print, mode="x"),
        torch,
    )


# -- backward inside backward -------------------------------------------------------------------


def test_backward_inside_a_hook(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x, w = leaf(ns, [1.0, 2.0]), leaf(ns, [3.0, 4.0])
        y = x * x

        def hook(g: Any) -> Any:
            with ns.enable_grad():
                inner = (w * w * g.detach()).sum()
                inner.backward()
                (slope,) = ns.autograd.grad((w**3).sum(), w)
            return g * slope

        y.register_hook(hook)
        (y * 2).sum().backward()
        return x.grad, w.grad

    agree(program, torch)


def test_backward_of_the_same_graph_inside_its_hook(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        y = x * x
        z = (y * 3).sum()
        seen: list[Any] = []

        def hook(g: Any) -> None:
            if not seen:
                with ns.enable_grad():
                    again = (y * y).sum()
                seen.append("entered")
                seen.append(ns.autograd.grad(again, x, retain_graph=True)[0])

        y.register_hook(hook)
        z.backward()
        return seen, x.grad

    agree(program, torch)


def test_backward_inside_a_custom_function(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        class Inner(ns.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                with ns.enable_grad():
                    ctx.x = x.detach().requires_grad_()
                    ctx.y = ctx.x.exp() * ctx.x
                return ctx.y.detach()

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                ctx.y.backward(g)
                return ctx.x.grad

        x = leaf(ns, [1.0, 2.0])
        (Inner.apply(x * 2) * x).sum().backward()
        return x.grad

    agree(program, torch)


def test_hooks_after_accumulation_run_as_soon_as_a_gradient_is_complete() -> None:
    """The last layer's hooks run before the first layer's backward, and a shared weight's only
    after its last use, although leaves are older than all nodes."""
    layers = [eg.nn.Linear(3, 3) for _ in range(3)]
    seen: list[str] = []
    for number, layer in enumerate(layers):
        for name, parameter in layer.named_parameters():
            parameter.register_post_accumulate_grad_hook(
                lambda p, label=f"{number}.{name}": seen.append(label)
            )
    x = eg.ones(2, 3)
    for number, layer in enumerate((*layers, layers[2], layers[0])):
        x = layer(x).tanh()
        x.register_hook(lambda g, number=number: seen.append(f"output {number}"))
    x.sum().backward()
    assert seen.index("2.weight") < seen.index("1.weight") < seen.index("output 0")
    assert seen.index("output 2") < seen.index("2.weight")
    assert seen.index("output 0") < seen.index("0.weight")
    assert sorted(seen) == sorted(set(seen)) and len(seen) == 11


def test_a_hooked_leaf_behind_a_node_without_cotangent() -> None:
    class Drops(eg.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):  # type: ignore[no-untyped-def]
            return x * 1

        @staticmethod
        def backward(ctx, g):  # type: ignore[no-untyped-def]
            return g, None

    a, b = (eg.ones(2, requires_grad=True) for _ in range(2))
    seen: list[int] = []
    for number, one in enumerate((a, b)):
        one.register_post_accumulate_grad_hook(lambda p, number=number: seen.append(number))
    ((Drops.apply(a, (a * 3 + b).exp()) + b) * 2).sum().backward()
    assert a.grad.tolist() == [2, 2] and b.grad.tolist() == [2, 2] and sorted(seen) == [0, 1]
    (grad,) = eg.autograd.grad((a * 2).sum(), [a])
    assert grad.tolist() == [2, 2] and sorted(seen) == [0, 1]
