"""Hooks on saved values: what passes through them, in which order, and what is checked."""

from __future__ import annotations

import gc
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.errors import SavedValueError
from evergrad.memory.ledger import LEDGER
from twins import agree, leaf, refuse


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
    assert recorder.packed[:2] == [[2.0], [3.0]]  # both parts of the division
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


def test_views_through_the_hooks_in_a_compiled_function() -> None:
    """What is saved, or returned by unpack, may be a view: its value is that of the view."""
    weight = eg.arange(12.0).reshape(6, 2).requires_grad_()
    scale = eg.ones(3, 2).requires_grad_()
    table = eg.arange(8.0).reshape(4, 2)

    def as_it_is(saved: eg.Tensor) -> eg.Tensor:
        return saved

    def moved(saved: eg.Tensor) -> eg.Tensor:
        size, stride = tuple(saved.shape), saved.stride()
        return saved.clone().as_strided(size, stride) if saved.is_contiguous() else saved

    def step(x: Any, unpack: Any) -> list[Any]:
        with eg.autograd.graph.saved_tensors_hooks(as_it_is, unpack):
            rows = (x * scale) @ weight[1:5].t()
            loss = (rows[:, :2] * table[1:].reshape(2, 3).t()).sum() + (rows.t() ** 2).sum()
        loss.backward()
        found = [weight.grad.clone(), scale.grad.clone()]
        weight.grad = scale.grad = None
        return found

    x = eg.ones(3, 2)
    for unpack in (as_it_is, moved):
        compiled = eg.compile(lambda x, unpack=unpack: step(x, unpack))
        for found, expected in zip(compiled(x), step(x, unpack), strict=True):
            np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5)
