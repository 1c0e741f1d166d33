"""Handles on one memory, and copies of whole objects: detach, data, storages, pickle, deepcopy."""

from __future__ import annotations

import copy
import os
import pickle
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad
from evergrad.core.interpret import interpret
from evergrad.core.traced_function import trace
from evergrad.errors import SavedValueError, TraceError
from evergrad.func import jvp
from oracle import assert_same

# -- handles ------------------------------------------------------------------------------------


def test_detached_tensors_share_memory_but_no_history() -> None:
    x = evergrad.ones(2, requires_grad=True)
    for cut in (x.detach(), x.data, evergrad.detach(x)):
        assert not cut.requires_grad and cut.data_ptr() == x.data_ptr()
    x.data.fill_(3)
    x.detach()[0] = 4
    assert x.tolist() == [4, 3] and x.is_leaf


def test_a_write_to_data_is_noticed_by_backward() -> None:
    x = evergrad.ones(2, requires_grad=True)
    y = x.exp()
    y.data.zero_()
    with pytest.raises(SavedValueError):
        y.sum().backward()


def test_setting_data_keeps_the_leaf() -> None:
    x = evergrad.ones(2, requires_grad=True)
    x.data = evergrad.tensor([5.0, 6.0, 7.0])
    (x * x).sum().backward()
    assert x.grad.tolist() == [10, 12, 14]
    with pytest.raises(TypeError, match="has to be a tensor"):
        x.data = 3


def test_setting_data_while_tracing_is_a_write() -> None:
    weight = evergrad.ones(2)

    def step(x: Any) -> Any:
        weight.data = weight + x
        return weight * 1

    traced = trace(step, [weight._type])
    assert weight.tolist() == [1, 1]
    (found,) = interpret(traced.graph, evergrad.tensor([1.0, 2.0]))
    assert weight.tolist() == [2, 3] and found.tolist() == [2, 3]
    with pytest.raises(TraceError, match=r"was set to a float32\[1\]"):
        trace(lambda x: setattr(weight, "data", x[:1]), [weight._type])


def test_forward_mode_stops_at_detach() -> None:
    x = evergrad.tensor([2.0, 3.0])
    value, tangent = jvp(lambda x: x.detach() * x, (x,), (evergrad.ones(2),))
    assert value.tolist() == [4, 9] and tangent.tolist() == [2, 3]


def test_detach_in_place(torch: ModuleType) -> None:
    def call(ns: Any) -> Any:
        y = ns.ones(2, requires_grad=True) * 2
        return y.detach_()

    assert_same(torch, call)
    assert_same(torch, lambda ns: ns.ones(2, requires_grad=True).view(2).detach_())


def test_set_looks_at_another_storage(torch: ModuleType) -> None:
    assert_same(torch, lambda ns: ns.zeros(2).set_(ns.ones(3)))
    assert_same(torch, lambda ns: ns.zeros(2).set_(ns.ones(3, dtype=ns.int64)))


def test_storages(torch: ModuleType) -> None:
    def call(ns: Any) -> Any:
        x = ns.zeros(2, 3)
        whole = x[1].untyped_storage()
        return whole.nbytes(), whole.size(), len(whole), whole.data_ptr() == x.data_ptr()

    assert_same(torch, call)
    x = evergrad.tensor([1.0, 2.0])
    assert x[1:].storage().tolist() == [1, 2] and x.storage().size() == 2
    assert x.untyped_storage() == x[1:].untyped_storage()
    assert x.untyped_storage() != evergrad.ones(1).untyped_storage()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_shared_memory_is_seen_across_a_fork() -> None:
    x = evergrad.zeros(3)
    assert not x.is_shared()
    assert x.share_memory_() is x and x.is_shared() and x[1:].is_shared()
    child = os.fork()
    if child == 0:
        x[1] = 7
        os._exit(0)
    os.waitpid(child, 0)
    assert x.tolist() == [0, 7, 0]
    with pytest.raises(RuntimeError, match="before it is used"):
        evergrad.zeros(3)[1:].share_memory_()


@pytest.mark.parametrize(
    "hold",
    [
        lambda x: x[1:], lambda x: x.detach(), lambda x: x.untyped_storage(), lambda x: x.data,
        lambda x: [x.view(-1)], lambda x: {"a": (x.t(),)}, lambda x: x.reshape(-1)[0],
        lambda x: (x.requires_grad_() * x).sum(),
    ],
)  # fmt: skip
def test_shared_memory_is_refused_while_others_look_at_the_elements(hold: Any) -> None:
    """Whatever holds the storage, in any version of Python."""
    x = evergrad.ones(3, 3)
    held = hold(x)
    with pytest.raises(RuntimeError, match="before it is used"):
        x.share_memory_()
    del held
    x = x.detach()
    assert x.share_memory_().is_shared()


def test_tensors_in_containers_can_be_shared() -> None:
    """Other names of the tensor itself are no other handles."""
    x = evergrad.ones(3)
    held = {"x": x, "list": [x, (x,)], "function": lambda: x}
    layer = evergrad.nn.Linear(3, 2)
    x.share_memory_()
    layer.share_memory()
    assert held["x"].is_shared() and all(p.is_shared() for p in layer.parameters())


# -- copies of objects --------------------------------------------------------------------------


def reload(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


class Named(evergrad.Tensor):
    """A subclass with an attribute, at a place where pickle finds it."""


@pytest.mark.parametrize("copied", [reload, copy.deepcopy], ids=["pickle", "deepcopy"])
def test_copies_keep_sharing_among_themselves(copied: Any) -> None:
    base = evergrad.arange(6.0).reshape(2, 3)
    original = [base, base[1], base.T, base[:, ::2], base]
    made = copied(original)
    for a, b in zip(made, original, strict=True):
        assert a.tolist() == b.tolist() and a.stride() == b.stride()
    assert made[0] is made[4]
    made[1].fill_(9)
    assert made[0][1].tolist() == [9, 9, 9] and made[2][:, 1].tolist() == [9, 9, 9]
    assert base[1].tolist() == [3, 4, 5]


@pytest.mark.parametrize("copied", [reload, copy.deepcopy], ids=["pickle", "deepcopy"])
def test_copies_keep_type_flags_and_class(copied: Any) -> None:
    for name in ("bool", "int8", "bfloat16", "float64", "complex64"):
        x = evergrad.ones(2, dtype=getattr(evergrad, name))
        assert copied(x).dtype is x.dtype
    x = Named([1.0, 2.0]).requires_grad_()
    x.label = "w"
    made = copied(x)
    assert type(made) is Named and made.label == "w" and made.requires_grad and made.is_leaf


def test_views_that_their_storage_cannot_describe_are_copied() -> None:
    z = evergrad.tensor([1 + 2j, 3 + 4j])
    assert reload(evergrad.view_as_real(z)).tolist() == [[1, 2], [3, 4]]
    columns = evergrad.from_numpy(np.arange(6.0).reshape(2, 3)[:, ::2])
    assert reload(columns).tolist() == [[0, 2], [3, 5]]
    assert reload(columns[0]).tolist() == [0, 2]


def test_deepcopy_takes_the_gradient_along() -> None:
    x = evergrad.ones(2, requires_grad=True)
    (x * 3).sum().backward()
    made = copy.deepcopy(x)
    assert made.grad.tolist() == [3, 3] and made.grad is not x.grad
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(x * 2)


def test_a_shallow_copy_shares_memory() -> None:
    x = evergrad.ones(2, requires_grad=True)
    made = copy.copy(x)
    assert made is not x and made.data_ptr() == x.data_ptr() and made.requires_grad


def test_deepcopy_while_tracing_belongs_to_the_program() -> None:
    weight = evergrad.ones(2)

    def program(x: Any) -> Any:
        made = copy.deepcopy(weight)
        made += x
        return made

    traced = trace(program, [weight._type])
    assert not traced.graph.writes
    (found,) = interpret(traced.graph, evergrad.tensor([1.0, 2.0]))
    assert found.tolist() == [2, 3] and weight.tolist() == [1, 1]


def test_another_class_for_the_same_tensor() -> None:
    x = evergrad.ones(2, requires_grad=True)
    named = (x * 2).as_subclass(Named)
    named.sum().backward()
    assert type(named) is Named and x.grad.tolist() == [2, 2]
