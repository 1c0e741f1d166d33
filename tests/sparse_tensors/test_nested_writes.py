"""Nested tensors: writes of given values, and forms of choosing, as in PyTorch."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

import evergrad as eg

from .test_nested import agree, ragged, same_offsets, strided, weight

CALLS: dict[str, Any] = {
    "zero_": lambda ns, x: x.zero_(),
    "fill_": lambda ns, x: x.fill_(2.5),
    "copy_": lambda ns, x: x.copy_(x * 3),
    "copy_ of other offsets": lambda ns, x: x.copy_(ragged(ns) + 1),
    "copy_ of another type": lambda ns, x: x.copy_((x * 3).float()),
    "argmax": lambda ns, x: x.argmax(),
    "argmin": lambda ns, x: x.argmin(),
    "select": lambda ns, x: (x.select(0, 0), x.select(0, -1)),
    "new last dimension": lambda ns, x: x[..., None],
    "dense first": lambda ns, x: weight(ns) @ x.transpose(1, 2),
}


@pytest.mark.parametrize("name", CALLS)
def test_as_in_torch(name: str, torch: ModuleType) -> None:
    agree(lambda ns: CALLS[name](ns, ragged(ns)), torch)


def test_an_example_can_be_selected_and_trained() -> None:
    x = ragged(eg, requires_grad=True)
    (x.select(0, 0).sum() + (weight(eg) @ x.transpose(1, 2)).values().sum()).backward()
    first, *others = x.grad.unbind()
    eg.testing.assert_close(first, weight(eg).sum(0).expand_as(first) + 1)
    for other in others:
        eg.testing.assert_close(other, weight(eg).sum(0).expand_as(other))


@pytest.mark.parametrize("make", [ragged, strided])
def test_writes_are_recorded(make: Any) -> None:
    """What was written over has no gradient, and a source has all of it."""
    x, source = make(eg, requires_grad=True), make(eg, requires_grad=True)
    copied = (x * 2).copy_(source * 3)
    copied.values().sum().backward()
    assert (x.grad is None or (x.grad.values() == 0).all()) and (source.grad.values() == 3).all()
    filled = (x * 2).fill_(eg.tensor(1.0))
    assert (filled.values() == 1).all()
    (x * 2).values().sum().backward()
    x.grad.zero_()
    assert (x.grad.values() == 0).all()
    with pytest.raises(RuntimeError, match="in-place operation"):
        x.zero_()
    with eg.no_grad():
        assert x.copy_(0) is x
    assert (x.values() == 0).all() and x.requires_grad


def test_copies_of_something_else_are_refused() -> None:
    x = ragged(eg)
    others = [eg.ones(3, 4), strided(eg), same_offsets(eg, x)[..., :2], ragged(eg).transpose(1, 2)]
    for other in [*others, eg.nested.nested_tensor([eg.ones(2, 4)] * 3, layout=eg.jagged)]:
        with pytest.raises(RuntimeError, match="examples have the same shapes"):
            x.copy_(other)


def test_the_largest_of_nothing() -> None:
    """Along a dimension that is not ragged each of no rows has one; of all there is none."""
    empty = eg.nested.nested_tensor([eg.ones(0, 4)] * 2, layout=eg.jagged)
    for found in empty.max(2):
        assert [example.shape[0] for example in found.unbind()] == [0, 0]
    for dims in [(0, 1), (0, 1, 2)]:
        with pytest.raises(IndexError, match="non-zero size"):
            empty.amax(dims)


@pytest.mark.parametrize("p", [1.5, -0.5, float("nan")])
def test_attention_refuses_what_is_no_probability(p: float) -> None:
    q = ragged(eg).unflatten(-1, (2, 2)).transpose(1, 2)
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        eg.nn.functional.scaled_dot_product_attention(q, q, q, dropout_p=p)
