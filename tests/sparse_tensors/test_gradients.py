"""Gradients of sparse tensors, of their values, and of dense tensors beside them."""

from __future__ import annotations

import gc
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad
from evergrad.memory.ledger import LEDGER
from twins import assert_same as same
from twins import derivatives, plain

from .layouts import NUMBERS, PLACES, SHAPE, agree, dense_example, example, whole

# -- sparse leaves ------------------------------------------------------------------------------

LEAF_CALLS: dict[str, Any] = {
    "to_dense": lambda ns, s: s.to_dense() * dense_example(ns),
    "mm": lambda ns, s: ns.mm(s, dense_example(ns, 4, 2)),
    "matmul": lambda ns, s: s @ dense_example(ns, 4, 2),
    "mv": lambda ns, s: s.mv(dense_example(ns)[0]),
    "dense mm": lambda ns, s: dense_example(ns, 2, 3) @ s,
    "addmm": lambda ns, s: ns.addmm(ns.ones(3, 2).double(), s, dense_example(ns, 4, 2), alpha=3),
    "sparse.mm": lambda ns, s: ns.sparse.mm(s, dense_example(ns, 4, 2)),
    "sparse.mm sparse": lambda ns, s: ns.sparse.mm(s, s.t()),
    "sparse.addmm": lambda ns, s: ns.sparse.addmm(
        ns.ones(3, 2).double(), s, dense_example(ns, 4, 2), alpha=3
    ),
    "sum": lambda ns, s: s.sum() * 3,
    "sparse.sum": lambda ns, s: ns.sparse.sum(s) * 3,
    "sparse.sum 0": lambda ns, s: ns.sparse.sum(s, 0),
    "times number": lambda ns, s: s * 2,
    "times dense": lambda ns, s: s * dense_example(ns),
    "times itself": lambda ns, s: s * s,
    "plus itself": lambda ns, s: s + s,
    "dense plus": lambda ns, s: (dense_example(ns) + s) * dense_example(ns),
    "coalesce": lambda ns, s: s.coalesce() * dense_example(ns),
    "values": lambda ns, s: s.coalesce().values() ** 2,
    "t": lambda ns, s: s.t() * dense_example(ns).t(),
    "neg": lambda ns, s: -s,
    "double": lambda ns, s: s.float().double(),
    "clone": lambda ns, s: s.clone() * 2,
    "through csr": lambda ns, s: s.to_sparse_csr().to_dense() * dense_example(ns),
}


def gradient_of_leaf(ns: Any, call: Any, coalesced: bool) -> Any:
    leaf = example(ns, coalesced, requires_grad=True)
    result = call(ns, leaf)
    total = ns.sparse.sum(result) if result.is_sparse else result.sum()
    total.backward()
    return leaf.grad


@pytest.mark.parametrize("coalesced", [False, True], ids=["uncoalesced", "coalesced"])
@pytest.mark.parametrize("name", LEAF_CALLS)
def test_of_a_leaf(name: str, coalesced: bool, torch: ModuleType) -> None:
    agree(lambda ns: gradient_of_leaf(ns, LEAF_CALLS[name], coalesced), torch, whole)


def test_functions_without_derivative_in_torch() -> None:
    """PyTorch cannot differentiate these; here the numbers are checked against the dense ones."""
    for call in (
        lambda s: s.sin(),
        lambda s: s.index_select(0, evergrad.tensor([1, 0])),
        lambda s: s[0],
        lambda s: s.abs().sqrt(),
    ):
        leaf = example(evergrad, requires_grad=True)
        (call(leaf).to_dense() ** 2).sum().backward()
        dense = example(evergrad).to_dense().requires_grad_()
        (call(dense) ** 2).sum().backward()
        there = example(evergrad).to_dense() != 0
        expected = evergrad.where(there, dense.grad, 0)
        np.testing.assert_allclose(leaf.grad.to_dense().numpy(), expected.numpy())


def test_accumulating(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        leaf = example(ns, True, requires_grad=True)
        (leaf.to_dense() * 2).sum().backward()
        ns.sparse.mm(leaf, dense_example(ns, 4, 2)).sum().backward()
        first = leaf.grad.clone()
        (leaf @ dense_example(ns, 4, 2)).sum().backward()
        return first, leaf.grad

    agree(program, torch, whole)


def test_autograd_grad_and_hooks(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        leaf = example(ns, True, requires_grad=True)
        seen: list[Any] = []
        leaf.register_hook(lambda g: seen.append(g.layout == ns.sparse_coo))
        doubled = leaf * 2
        out = (doubled.to_dense() * dense_example(ns)).sum()
        found = ns.autograd.grad(out, [leaf, doubled], retain_graph=True)
        leaf.register_hook(lambda g: g * 10)
        out.backward()
        return found, leaf.grad, seen

    agree(program, torch, whole)


def test_retaining_the_gradient_of_a_computed_tensor() -> None:
    leaf = example(evergrad, True, requires_grad=True)
    doubled = leaf * 2
    doubled.retain_grad()
    (doubled.to_dense() * dense_example(evergrad)).sum().backward()
    assert not doubled.is_leaf and doubled.grad.layout is evergrad.sparse_coo
    np.testing.assert_allclose(leaf.grad._values().numpy(), doubled.grad._values().numpy() * 2)


def test_leaf_or_not(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        values = ns.tensor(NUMBERS, requires_grad=True)
        made = ns.sparse_coo_tensor(PLACES, values, SHAPE)
        leaf = ns.sparse_coo_tensor(PLACES, values.detach(), SHAPE, requires_grad=True)
        with ns.no_grad():
            outside = made * 2
        return [
            (t.is_leaf, t.requires_grad, t.grad_fn is None)
            for t in (made, leaf, leaf * 2, made.coalesce(), made.detach(), leaf.detach(), outside)
        ] + [leaf._values().requires_grad, leaf.coalesce().values().requires_grad]

    agree(program, torch)


# -- values and dense tensors, to second order --------------------------------------------------


def of_values(ns: Any, values: Any) -> Any:
    return ns.sparse_coo_tensor(PLACES, values, SHAPE)


def dense_of_values(ns: Any, values: Any) -> Any:
    rows, columns = (ns.tensor(row) for row in PLACES)
    return ns.zeros(SHAPE, dtype=ns.float64).index_put((rows, columns), values, accumulate=True)


def stored(ns: Any, dense: Any) -> Any:
    """The elements of a dense matrix at the places of the sparse one, in order."""
    return dense[ns.tensor([0, 1, 2]), ns.tensor([2, 0, 3])]


# The sparse form, and what it is in dense tensors.
TWICE: dict[str, Any] = {
    "to_dense": (
        lambda ns, s, d: s.to_dense() * d * d,
        lambda ns, s, d: s * d * d,
    ),
    "coalesce": (
        lambda ns, s, d: s.coalesce().values() ** 2 * d.sum(),
        lambda ns, s, d: stored(ns, s) ** 2 * d.sum(),
    ),
    "mm": (lambda ns, s, d: (s @ d.t()) ** 2,) * 2,
    "sparse.mm": (lambda ns, s, d: ns.sparse.mm(s, d.t()) ** 2,) * 2,
    "dense mm": (lambda ns, s, d: (d.t() @ s) ** 2,) * 2,
    "mm of both": (
        lambda ns, s, d: (s @ s.t()).to_dense() * d[:, :3],
        lambda ns, s, d: (s @ s.t()) * d[:, :3],
    ),
    "times dense": (
        lambda ns, s, d: (s * d).to_dense() ** 2,
        lambda ns, s, d: (s * d) ** 2,
    ),
    "dense plus": (lambda ns, s, d: (d + s) ** 3,) * 2,
    "sparse_mask": (
        lambda ns, s, d: (d * d).sparse_mask(s.coalesce()).values() * s.coalesce().values(),
        lambda ns, s, d: stored(ns, d * d) * stored(ns, s),
    ),
    "sum": (
        lambda ns, s, d: ns.sparse.sum(s, 0).to_dense() ** 2 * d,
        lambda ns, s, d: s.sum(0) ** 2 * d,
    ),
}


@pytest.mark.parametrize("name", TWICE)
def test_to_second_order(name: str, torch: ModuleType) -> None:
    """PyTorch's sparse gradients have no history, so its dense tensors are the reference."""
    sparse, dense = TWICE[name]
    arrays = (np.array(NUMBERS), dense_example(evergrad).numpy())
    theirs = derivatives(torch, lambda ns, v, d: dense(ns, dense_of_values(ns, v), d), *arrays)
    ours = derivatives(evergrad, lambda ns, v, d: sparse(ns, of_values(ns, v), d), *arrays)
    same(plain(ours), plain(theirs), 1e-9)


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_gradcheck(layout: str) -> None:
    def function(values: Any, dense: Any) -> Any:
        sparse = of_values(evergrad, values)
        sparse = sparse.to_sparse_csr() if layout == "csr" else sparse
        return evergrad.sparse.mm(sparse, dense), (sparse @ sparse.t()).to_dense()

    values = evergrad.tensor(NUMBERS, dtype=evergrad.float64, requires_grad=True)
    dense = dense_example(evergrad, 4, 2).requires_grad_()
    assert evergrad.autograd.gradcheck(function, (values, dense))
    assert evergrad.autograd.gradgradcheck(function, (values, dense))


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(name: str, dim: int, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        leaf = dense_example(ns).tril(1).to_sparse().requires_grad_()
        found = getattr(ns.sparse, name)(leaf, dim)
        ns.sparse.sum(found * dense_example(ns) ** 2).backward()
        return found, leaf.grad

    agree(program, torch, whole)
    places = dense_example(evergrad).tril(1).to_sparse().indices()

    def function(values: Any) -> Any:
        sparse = evergrad.sparse_coo_tensor(places, values, SHAPE, is_coalesced=True)
        return getattr(evergrad.sparse, name)(sparse, dim).values()

    values = evergrad.arange(places.shape[1], dtype=evergrad.float64).sin().requires_grad_()
    assert evergrad.autograd.gradgradcheck(function, (values,))


def test_dense_to_sparse(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        dense = ns.tensor([[0.0, 2.0], [3.0, 0.0]], requires_grad=True)
        sparse = dense.to_sparse()
        ns.sparse.sum(sparse * sparse).backward()
        return sparse.requires_grad, dense.grad

    agree(program, torch, whole)


def test_graphs_are_freed_without_the_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        before = LEDGER.count
        leaf = example(evergrad, requires_grad=True)
        out = (leaf * 2 + leaf).coalesce() @ dense_example(evergrad, 4, 2)
        out.sum().backward(create_graph=True)
        evergrad.sparse.mm(leaf, dense_example(evergrad, 4, 2)).sum().backward()
        del leaf, out
        assert LEDGER.count == before
    finally:
        gc.enable()


def test_transforms_go_through_the_elements() -> None:
    places = evergrad.tensor(PLACES)

    def squares(values: Any) -> Any:
        return evergrad.sparse_coo_tensor(places, values, SHAPE).to_dense() ** 2

    values, direction = evergrad.tensor(NUMBERS), evergrad.tensor([1.0, 2.0, 3.0, 4.0])
    _, tangent = evergrad.func.jvp(squares, (values,), (direction,))
    dense = evergrad.sparse_coo_tensor(places, values, SHAPE).to_dense()
    moved = evergrad.sparse_coo_tensor(places, direction, SHAPE).to_dense()
    np.testing.assert_allclose(tangent.numpy(), (2 * dense * moved).numpy())
    batched = evergrad.vmap(squares)(evergrad.stack([values, values * 2]))
    np.testing.assert_allclose(batched[1].numpy(), squares(values * 2).numpy())
