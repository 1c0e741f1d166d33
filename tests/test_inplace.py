"""Views and writes: memory, history, and errors instead of wrong gradients."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.core.op import TABLE
from twins import agree, assert_same, fixed, leaf, plain, refuse

SQUARE = [[1.0, -2.0, 3.0], [4.0, 5.0, -6.0], [7.0, 8.0, 9.0]]

# -- programs compared with PyTorch -------------------------------------------------------------


def add_to_row(ns: Any, x: Any, w: Any) -> Any:
    y = x * 2
    y[0] += w[1]
    return y


def write_through_view_of_view(ns: Any, x: Any, w: Any) -> Any:
    y = x * 2
    y.view(9).view(3, 3)[1].mul_(w[0])
    return y


def quotient_is_scaled(ns: Any, x: Any, w: Any) -> Any:
    y = x / w
    y.mul_(2)
    return y


def quotient_in_place(ns: Any, x: Any, w: Any) -> Any:
    y = x * 2
    y /= w
    return y


def base_is_seen_by_views(ns: Any, x: Any, w: Any) -> Any:
    y = x * 2
    row, column = y[0], y[:, 1]
    y.mul_(w)
    return row * 2, column.sum(), y


def view_is_seen_by_views(ns: Any, x: Any, w: Any) -> Any:
    y = x * 2
    row, column = y[0], y[:, 1]
    row.mul_(w[0])
    return column * 3, y.sum(), row


def view_is_seen_by_its_own_views(ns: Any, x: Any, w: Any) -> Any:
    y = x * 2
    top = y[:2]
    corner = top[0, :2]
    top.add_(w[:2])
    return corner * corner, y


def copy_into_part(ns: Any, x: Any, w: Any) -> Any:
    y = x * 2
    y[1].copy_(w[0] * 3)
    return y * y


def copy_into_all(ns: Any, x: Any, w: Any) -> Any:
    y = x * 2
    y.copy_(w)
    y.mul_(3)
    return y * w


def copy_into_constant(ns: Any, x: Any, w: Any) -> Any:
    y = ns.zeros(3, 3, dtype=ns.float64)
    y[:, 0] = x[:, 1] * w[0]
    y[2] = w[2]
    return y * y


def copy_broadcast(ns: Any, x: Any, w: Any) -> Any:
    y = x * 2
    y.copy_(w[0])
    return y * x


def zero_all(ns: Any, x: Any, w: Any) -> Any:
    y = x * w
    y.zero_()
    return y + x


def zero_part(ns: Any, x: Any, w: Any) -> Any:
    y = x * w
    y[1:].zero_()
    return y.sum(0)


def fill_with_a_tensor(ns: Any, x: Any, w: Any) -> Any:
    y = x * w
    y[0].fill_(w.sum())
    return y * x


def fill_with_a_number(ns: Any, x: Any, w: Any) -> Any:
    y = x * w
    y[0].fill_(3.0)
    return y * x


def set_item_forms(ns: Any, x: Any, w: Any) -> Any:
    y = x * 2
    y[0, 1] = w[0, 0]
    y[..., 2] = 5.0
    y[None, 1] = w[1:2] * 2
    y[y > 9] = 0.0
    y[[0, 2], [0, 1]] = w[0, :2] * w[1, :2]
    return y * w


def boolean_write(ns: Any, x: Any, w: Any) -> Any:
    y = x * 2
    y[x > 0] *= 3.0
    return y


def index_writes(ns: Any, x: Any, w: Any) -> Any:
    y = x * 2
    y.index_add_(0, ns.tensor([0, 0, 2]), w)
    y.masked_fill_(x < 0, 7.0)
    y.index_put_((ns.tensor([1, 1]), ns.tensor([0, 2])), w[0, :2])
    y.scatter_(1, ns.tensor([[2], [1], [0]]), w[:, :1])
    return y * y


def permuted_write(ns: Any, x: Any, w: Any) -> Any:
    y = x * 2
    y.t()[0].add_(w[0])
    y.transpose(0, 1).mul_(w)
    return y


def diagonal_write(ns: Any, x: Any, w: Any) -> Any:
    y = x * 2
    y.diagonal().mul_(w[0])
    return y


def strided_write(ns: Any, x: Any, w: Any) -> Any:
    y = x * 2
    y.as_strided((2, 2), (4, 1), 1).mul_(w[:2, :2])
    return y


def deep_chain_of_views(ns: Any, x: Any, w: Any) -> Any:
    y = x * 2
    v = y
    for _ in range(5):
        v = v.t().view(3, 3) if v.is_contiguous() and False else v.t()
        v = v[:, :]
    v = v.unsqueeze(0).squeeze(0).unsqueeze(-1).select(-1, 0)
    v.mul_(w)
    return y * x


def chain_of_operators(ns: Any, x: Any, w: Any) -> Any:
    y = x + 0
    y += w
    y -= 2
    y *= w
    y /= 3
    y **= 2
    return y


def real_and_imaginary_parts(ns: Any, x: Any, w: Any) -> Any:
    z = ns.complex(x * 2, w * 1)
    z.real.mul_(w)
    return (z * z.conj()).real


def write_to_a_constant_view_of_a_constant(ns: Any, x: Any, w: Any) -> Any:
    y = fixed(ns, SQUARE)
    y[0].mul_(x[0])
    before = y[1] * 2
    y[1] = w[1]
    return y * x, before


def detached_writes_do_not_enter(ns: Any, x: Any, w: Any) -> Any:
    y = x + 1
    z = y + w
    y.detach()[0] = 100.0
    return z, y


def write_without_history(ns: Any, x: Any, w: Any) -> Any:
    y = x + 1
    with ns.no_grad():
        y.mul_(10)
    return y * 2


def write_to_what_nobody_saved(ns: Any, x: Any, w: Any) -> Any:
    y = x + w
    y.neg_()
    y.add_(1)
    z = y * 3
    y.zero_()
    return z


def out_of_place_twin(ns: Any, x: Any, w: Any) -> Any:
    y = x * 1
    y.sin_().mul_(y)
    y.tanh_()
    return y


def row_by_row(ns: Any, x: Any, w: Any) -> Any:
    y = x * 2
    for i in range(3):
        y[i].add_(y[i - 1])
        y[i] *= w[i]
    return y


PROGRAMS: list[Callable[..., Any]] = [
    add_to_row, write_through_view_of_view, base_is_seen_by_views, view_is_seen_by_views,
    view_is_seen_by_its_own_views, copy_into_part, copy_into_all, copy_into_constant,
    copy_broadcast, zero_all, zero_part, fill_with_a_tensor, fill_with_a_number, set_item_forms,
    boolean_write, index_writes, permuted_write, diagonal_write, strided_write,
    deep_chain_of_views, chain_of_operators, real_and_imaginary_parts,
    write_to_a_constant_view_of_a_constant, detached_writes_do_not_enter, write_without_history,
    write_to_what_nobody_saved, row_by_row, quotient_is_scaled, quotient_in_place,
]  # fmt: skip


def gradients(ns: Any, function: Callable[..., Any], order: int = 1) -> Any:
    x, w = leaf(ns, SQUARE), leaf(ns, [[0.5, 1.0, 2.0], [-1.0, 3.0, 0.25], [1.5, -2.0, 1.0]])
    results = function(ns, x, w)
    results = results if isinstance(results, tuple) else (results,)
    loss = sum((r * (k + 1)).sum() for k, r in enumerate(results))
    first = ns.autograd.grad(
        loss, [x, w], create_graph=order > 1, allow_unused=True, materialize_grads=True
    )
    if order == 1:
        return results, first
    again = sum((g * g).sum() for g in first)
    if not again.requires_grad:
        return [ns.zeros_like(x), ns.zeros_like(w)]
    return ns.autograd.grad(again, [x, w], materialize_grads=True)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_values_and_gradients(function: Any, order: int, torch: ModuleType) -> None:
    agree(lambda ns: gradients(ns, function, order), torch)


def test_an_op_may_overwrite_what_it_saved_itself() -> None:
    """PyTorch refuses ``y.mul_(y)``; here the op keeps its own copy, and the gradient is right."""
    results, (grad, _) = gradients(eg, out_of_place_twin)
    x = np.array(SQUARE)
    s = np.sin(x) ** 2
    np.testing.assert_allclose(results[0].detach().numpy(), np.tanh(s))
    slope = (1 - np.tanh(s) ** 2) * 2 * np.sin(x) * np.cos(x)
    np.testing.assert_allclose(grad.numpy(), slope, rtol=1e-12)


# -- what a write makes of a tensor -------------------------------------------------------------


def test_a_copied_tensor_has_a_place_of_its_own(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        y = ns.zeros(2, dtype=ns.float64)
        y.copy_(x)
        told = y.is_leaf, y.requires_grad, y.grad_fn is None
        seen: list[Any] = []
        y.register_hook(lambda g: seen.append(g.clone()))
        (y * 3 + x * 10).sum().backward()
        return told, seen, x.grad

    agree(program, torch)


def test_versions_count_writes(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = fixed(ns, SQUARE)
        told = [x._version]
        x.mul_(2)
        told.append(x._version)
        row = x[0]
        row.add_(1)
        told += [x._version, row._version, x.detach()._version, x.clone()._version]
        with ns.no_grad():
            x.zero_()
        told.append(row._version)
        return told

    agree(program, torch)


def test_in_place_results_are_the_tensor_itself() -> None:
    x = fixed(eg, SQUARE)
    assert x.add_(1) is x
    assert x.clamp_(0, 1) is x
    assert x[0].copy_(x[1]).data_ptr() == x.data_ptr()
    before = x
    x += 1
    assert x is before


def test_views_share_memory_both_ways(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = fixed(ns, SQUARE)
        v = x.t()[1:, 0]
        v[0] = 100.0
        x[0, 2] = -1.0
        return x, v, v._base is not None, x._base is None, v.storage_offset(), v.stride()

    agree(program, torch)


# -- refusals -----------------------------------------------------------------------------------

REFUSED = {
    "a leaf": lambda ns: leaf(ns, SQUARE).mul_(2),
    "a leaf by operator": lambda ns: leaf(ns, SQUARE).__iadd__(1),
    "an element of a leaf": lambda ns: leaf(ns, SQUARE).__setitem__(0, 1.0),
    "a view of a leaf": lambda ns: leaf(ns, SQUARE).view(9).mul_(2),
    "a view of a view of a leaf": lambda ns: leaf(ns, SQUARE).t()[0].zero_(),
    "an expanded tensor": lambda ns: fixed(ns, [1.0]).expand(3).mul_(2),
    "an expanded tensor with history": lambda ns: (leaf(ns, [1.0]) * 2).expand(3).mul_(2),
    "an expanded tensor by copy": lambda ns: fixed(ns, [1.0]).expand(3).copy_(ns.zeros(3)),
    "a larger result": lambda ns: fixed(ns, [1.0, 2.0]).add_(fixed(ns, SQUARE)[:2, :2]),
    "a smaller category": lambda ns: ns.tensor([1, 2]).add_(0.5),
    "division of integers": lambda ns: ns.tensor([1, 2]).div_(2),
    "another shape": lambda ns: fixed(ns, [1.0, 2.0]).copy_(fixed(ns, [1.0, 2.0, 3.0])),
    "complex into real": lambda ns: fixed(ns, [1.0]).add_(1j),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_pytorch_refuses_is_refused(name: str, torch: ModuleType) -> None:
    refuse(REFUSED[name], torch)


def view_made_without_gradients(ns: Any) -> None:
    y = leaf(ns, SQUARE) * 2
    with ns.no_grad():
        row = y[0]
    row.mul_(2)


def constant_view_gets_history(ns: Any) -> None:
    y = fixed(ns, SQUARE)
    with ns.no_grad():
        row = y[0]
    row.mul_(leaf(ns, 2.0))


@pytest.mark.parametrize("program", [view_made_without_gradients, constant_view_gets_history])
def test_views_made_without_gradients(program: Any, torch: ModuleType) -> None:
    refuse(program, torch, match="no_grad")


def test_a_leaf_may_be_written_without_gradients(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        with ns.no_grad():
            x.mul_(3)
            x[0] = 5.0
            x.view(2, 1).add_(1)
        (x * x).sum().backward()
        return x, x.grad, x.is_leaf

    agree(program, torch)


def test_data_may_be_written_before_it_is_used(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        x.data.mul_(3)
        x.data[0] = 4.0
        (x * x).sum().backward()
        x.data = fixed(ns, [7.0, 8.0])
        x.grad = None
        (x * x).sum().backward()
        return x, x.grad

    agree(program, torch)


# -- in place is out of place -------------------------------------------------------------------

IN_PLACE = sorted(
    name
    for name, op in TABLE.items()
    if op.family == "elementwise" and hasattr(eg.Tensor, name + "_")
)


def arguments(name: str) -> tuple[Any, ...]:
    """The first arguments that an op takes, the tensor in question before the others."""
    for x in (fixed(eg, [[0.3, 0.6], [0.7, 0.9]]), eg.tensor([[5, 3], [2, 7]])):
        other = x.flip(0) + 1
        for others in ((), (other,), (other, other), (1,), (other, 0.5), (0.4, 0.8)):
            try:
                getattr(x, name)(*others)
            except (TypeError, ValueError, RuntimeError):
                continue
            return (x, *others)
    raise AssertionError(f"no arguments are known for {name}")


@pytest.mark.parametrize("name", IN_PLACE)
def test_writing_into_the_argument_gives_the_same(name: str) -> None:
    """Also where the argument is the result's own memory, seen in another order."""
    x, *others = arguments(name)
    for swapped in (False, True):
        y, given = x.clone(), others
        if swapped and others and isinstance(others[0], eg.Tensor):
            given = [y.t(), *others[1:]]
        expected = getattr(y.clone(), name)(*(eg.as_tensor(o).clone() for o in given))
        getattr(y, name + "_")(*given)
        assert_same(plain(y), plain(expected.to(x.dtype)))


OF_FLOATS = ["exp_", "sqrt_", "tanh_", "sigmoid_", "floor_", "reciprocal_"]
FLOATS = [eg.float32, eg.float64, eg.bfloat16]
UNARY = [(name, dtype) for name in OF_FLOATS for dtype in FLOATS] + [
    (name, dtype) for name in ("neg_", "abs_", "square_") for dtype in (*FLOATS, eg.int32, eg.int64)
]


@pytest.mark.parametrize(("name", "dtype"), UNARY, ids=str)
def test_columns_of_any_width(name: str, dtype: Any) -> None:
    """NumPy's ``negative`` reads neighbours where a column's stride in elements is the size of an
    element in bytes: 4 columns of float32, 8 of float64."""
    for width in (1, 2, 3, 4, 5, 8, 16):
        x = (eg.arange(1, 9 * width + 1).reshape(9, width) % 7 + 1).to(dtype)
        for column in (x[:, 0], x[:, -1:], x[::2, 0]):
            expected = getattr(column.clone().contiguous(), name)()
            getattr(column, name)()
            assert eg.equal(column, expected), width


@pytest.mark.parametrize("number", [0, 1.5, float("nan"), 1e300, 7])
def test_filling_counts_as_a_write(number: float) -> None:
    """Also where it is a write of memory alone."""
    saved = eg.ones(3)
    x = eg.ones(3).requires_grad_()
    loss = (x * saved).sum()
    base = eg.ones(2, 3)
    kinds = [eg.ones(3), base[1], base.t()[0], eg.ones(3).bfloat16(), eg.ones(3).long(), saved]
    for target in kinds:
        before = target._version
        if not target.is_floating_point() and number != 7:
            continue
        try:
            wanted = eg.full((3,), number, dtype=target.dtype)
        except RuntimeError:
            with pytest.raises(RuntimeError):
                target.fill_(number)
            continue
        assert target.fill_(number) is target
        assert target._version == before + 1
        assert eg.equal(target.isnan(), wanted[: len(target)].isnan())
        assert eg.equal(target.nan_to_num(), wanted[: len(target)].nan_to_num())
    if saved._version:
        with pytest.raises(RuntimeError, match="inplace"):
            loss.backward()
    with pytest.raises(RuntimeError, match="leaf"):
        x.zero_()
    with eg.no_grad():
        x.zero_()
    assert not x.any()
    y = x * 2
    y.zero_()
    assert y.requires_grad
    expanded = eg.ones(3).expand(2, 3)
    expanded.fill_(2.0)
    assert (expanded == 2).all()
