"""Hooks: on gradients, on nodes, on several tensors, on saved values; backward inside backward."""

from __future__ import annotations

import gc
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from twins import agree, fixed, leaf, refuse

import evergrad as eg
from evergrad.errors import SavedValueError
from evergrad.memory.ledger import LEDGER

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
    live = LEDGER.live
    with pytest.raises(KeyError, match="mine"):
        y.sum().backward()
    assert x.grad is None
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
        end.register_hook(lambda ins, outs: seen.append((len(ins), outs[0].clone(), x.grad.clone())))
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


# -- on saved values ----------------------------------------------------------------------------


class Recorder:
    """Hooks that write down what passes through them."""

    def __init__(self, scale: float = 1.0) -> None:
        self.packed: list[Any] = []
        self.unpacked: list[Any] = []
        self.scale = scale

    def pack(self, tensor: Any) -> Any:
        self.packed.append(tensor.detach().tolist())
        return tensor.detach() * self.scale

    def unpack(self, stored: Any) -> Any:
        self.unpacked.append(stored.tolist())
        return stored


def test_saved_values_pass_through_the_hooks(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x, w = leaf(ns, [1.0, 2.0]), leaf(ns, [3.0, 4.0])
        recorder = Recorder()
        with ns.autograd.graph.saved_tensors_hooks(recorder.pack, recorder.unpack):
            y = (x * w).exp() + 1
            z = x.sin()
        (y + z).sum().backward()
        return sorted(recorder.packed), sorted(recorder.unpacked), x.grad, w.grad

    agree(program, torch)


def test_values_are_packed_in_the_stated_order() -> None:
    """Op by op; arguments in their order, then results."""
    x, w = leaf(eg, [2.0]), leaf(eg, [3.0])
    recorder = Recorder()
    with eg.autograd.graph.saved_tensors_hooks(recorder.pack, recorder.unpack):
        y = (x / w).exp() * w
    assert recorder.packed[0] == [3.0]  # w, for division
    assert recorder.packed[-2:] == [[np.exp(2 / 3)], [3.0]]  # both factors
    forward = list(recorder.packed)
    y.sum().backward()
    assert sorted(recorder.unpacked) == sorted(forward)
    assert recorder.unpacked[:2] == forward[-2:]


def test_what_unpack_returns_is_used(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        recorder = Recorder(scale=10.0)
        with ns.autograd.graph.saved_tensors_hooks(recorder.pack, recorder.unpack):
            y = x.exp()
        y.sum().backward()
        return x.grad

    agree(program, torch)


def test_the_innermost_hooks_win(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        outer, inner = Recorder(), Recorder()
        with ns.autograd.graph.saved_tensors_hooks(outer.pack, outer.unpack):
            y = x.exp()
            with ns.autograd.graph.saved_tensors_hooks(inner.pack, inner.unpack):
                z = y.sin()
            z = z * y
        z.sum().backward()
        return sorted(outer.packed), inner.packed, sorted(outer.unpacked), inner.unpacked, x.grad

    agree(program, torch)


def test_hooks_and_higher_derivatives(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        recorder = Recorder()
        with ns.autograd.graph.saved_tensors_hooks(recorder.pack, recorder.unpack):
            y = (x.exp() * x).sum()
        (first,) = ns.autograd.grad(y, x, create_graph=True)
        return first, ns.autograd.grad(first.sum(), x)

    agree(program, torch)


def test_hooks_and_writes_in_place(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x, w = leaf(ns, [1.0, 2.0]), leaf(ns, [3.0, 4.0])
        recorder = Recorder()
        with ns.autograd.graph.saved_tensors_hooks(recorder.pack, recorder.unpack):
            y = x * 2
            y.mul_(w)
            y.exp_()
        y.sum().backward()
        return x.grad, w.grad

    agree(program, torch)


def test_values_may_live_elsewhere() -> None:
    store: dict[int, np.ndarray[Any, Any]] = {}

    def pack(tensor: Any) -> int:
        store[len(store)] = tensor.detach().numpy().copy()
        return len(store) - 1

    x = leaf(eg, [1.0, 2.0])
    with eg.autograd.graph.saved_tensors_hooks(pack, lambda key: eg.from_numpy(store.pop(key))):
        y = x.exp().sin()
    assert len(store) == 2
    y.sum().backward()
    assert not store
    np.testing.assert_allclose(x.grad.numpy(), np.cos(np.exp([1.0, 2.0])) * np.exp([1.0, 2.0]))


def test_save_on_cpu_keeps_copies(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        with ns.autograd.graph.save_on_cpu():
            y = x.exp()
        (y * 2).sum().backward()
        return x.grad

    agree(program, torch)


UNFIT = {
    "no tensor": (lambda t: 3.0, TypeError),
    "another shape": (lambda t: eg.ones(7, dtype=eg.float64), RuntimeError),
    "another dtype": (lambda t: t.float(), RuntimeError),
}


@pytest.mark.parametrize("name", UNFIT)
def test_unpack_must_give_back_what_was_saved(name: str) -> None:
    unpack, kind = UNFIT[name]
    x = leaf(eg, [1.0, 2.0])
    with eg.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
        y = x.exp()
    with pytest.raises(kind, match="unpack hook") as error:
        y.sum().backward()
    assert "y = x.exp()" in str(error.value)


def test_a_value_kept_by_reference_is_watched_in_hooks_too() -> None:
    x = leaf(eg, [1.0, 2.0])
    with eg.autograd.graph.saved_tensors_hooks(lambda t: (t, "kept"), lambda pair: pair[0]):
        y = x.exp()
    y.data.zero_()
    with pytest.raises(SavedValueError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_copy_made_by_a_hook_may_outlive_the_value() -> None:
    x = leaf(eg, [1.0, 2.0])
    with eg.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        y = x.exp()
    y.data.zero_()
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.exp([1.0, 2.0]))


def test_pack_must_not_write_to_its_argument(torch: ModuleType) -> None:
    def program(ns: Any) -> None:
        x = leaf(ns, [1.0, 2.0])
        with ns.autograd.graph.saved_tensors_hooks(lambda t: t.mul_(2), lambda t: t):
            (x * 1).sin()

    refuse(program, torch, match="pack hook is modifying its input in place")


def test_hooks_can_be_forbidden(torch: ModuleType) -> None:
    def within(ns: Any) -> None:
        with ns.autograd.graph.disable_saved_tensors_hooks("not here"):
            leaf(ns, [1.0]).exp()
            with ns.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
                leaf(ns, [1.0]).exp()

    def around(ns: Any) -> None:
        with (
            ns.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t),
            ns.autograd.graph.disable_saved_tensors_hooks("not here"),
        ):
            leaf(ns, [1.0]).exp()

    refuse(within, torch, match="not here")
    refuse(around, torch, match="not here")
    with eg.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        pass


def test_packed_results_hold_no_cycle() -> None:
    gc.collect()
    gc.disable()
    try:
        before = LEDGER.live, LEDGER.count
        x = leaf(eg, [1.0, 2.0])
        with eg.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            y = x.exp().sqrt() * x
        del x, y
        assert (LEDGER.live, LEDGER.count) == before
    finally:
        gc.enable()


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
