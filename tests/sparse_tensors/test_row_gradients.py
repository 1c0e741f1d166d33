"""Gradients of lookup tables that name only the rows that were looked up, and what optimizers and
clipping make of them."""

from __future__ import annotations

import copy
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad
from evergrad.memory.ledger import LEDGER
from twins import plain, refuse

from .layouts import agree, parts, whole

ROWS, COLUMNS = 7, 3


def table(ns: Any, kind: str = "Embedding", **options: Any) -> Any:
    made = getattr(ns.nn, kind)(ROWS, COLUMNS, sparse=True, dtype=ns.float64, **options)
    with ns.no_grad():
        weight = ns.arange(ROWS * COLUMNS, dtype=ns.float64).reshape(ROWS, COLUMNS)
        made.weight.copy_((weight / 5).cos())
    return made


def loss_of(found: Any) -> Any:
    """Has a gradient that differs everywhere."""
    return (found**2).sum() + (found * found.roll(1, 0)).sum()


# -- lookups ------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"padding_idx": 1}, {"padding_idx": -1}])
@pytest.mark.parametrize("numbers", [[3, 0, 1, 3], [[3, 0], [6, 3]], [2], []])
def test_embedding(numbers: Any, options: Any, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        layer = table(ns, **options)
        loss_of(layer(ns.tensor(numbers, dtype=ns.int64))).backward()
        return layer.weight.grad

    agree(program, torch)


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("options", [{}, {"padding_idx": 1}, {"include_last_offset": True}])
def test_embedding_bag(mode: str, options: Any, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        layer = table(ns, "EmbeddingBag", mode=mode, **options)
        loss_of(
            layer(ns.tensor([3, 0, 1, 3, 5]), ns.tensor([0, 2, 5][: 2 + len(options)]))
        ).backward()
        return layer.weight.grad

    agree(program, torch)


def test_embedding_bag_with_weights(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        layer = table(ns, "EmbeddingBag", mode="sum")
        own = ns.tensor([1.0, 2.0, 3.0, 4.0], dtype=ns.float64, requires_grad=True)
        loss_of(layer(ns.tensor([[3, 0], [1, 3]]), per_sample_weights=own.reshape(2, 2))).backward()
        return layer.weight.grad, own.grad

    agree(program, torch)


@pytest.mark.parametrize(
    "program",
    [
        lambda ns: loss_of(table(ns, scale_grad_by_freq=True)(ns.tensor([1, 1]))).backward(),
        lambda ns: table(ns, "EmbeddingBag", mode="max")(ns.tensor([[1, 1]])),
    ],
)
def test_refused(program: Any, torch: ModuleType) -> None:
    refuse(program, torch)


def test_accumulating(torch: ModuleType) -> None:
    """Sparse and sparse stay sparse, in PyTorch's order; sparse and dense become dense."""

    def program(ns: Any) -> Any:
        layer = table(ns)
        seen = []
        for numbers in ([3, 0, 1], [2, 0], [0, 6, 6]):
            loss_of(layer(ns.tensor(numbers))).backward()
            seen.append(layer.weight.grad.clone())
        (layer.weight * 3).sum().backward()
        seen.append(layer.weight.grad.clone())
        loss_of(layer(ns.tensor([5]))).backward()
        return [*seen, layer.weight.grad]

    agree(program, torch)


@pytest.mark.parametrize("dense_too", [False, True])
def test_several_uses_in_one_pass(dense_too: bool, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        layer = table(ns)
        loss = loss_of(layer(ns.tensor([3, 0]))) + loss_of(layer(ns.tensor([0, 5, 0])))
        if dense_too:
            loss = loss + layer.weight.pow(3).sum()
        loss.backward()
        return layer.weight.grad

    agree(program, torch)


def test_hooks_and_grad(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        layer = table(ns)
        seen: list[Any] = []
        layer.weight.register_hook(lambda g: seen.append(g.layout == ns.sparse_coo) or g * 2)
        layer.weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.is_sparse))
        loss = loss_of(layer(ns.tensor([3, 0, 3])))
        (found,) = ns.autograd.grad(loss, layer.weight, retain_graph=True)
        loss.backward()
        return found, layer.weight.grad, seen

    agree(program, torch)


def test_with_a_history(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        layer = table(ns)
        loss = (layer(ns.tensor([3, 0, 3])) ** 3).sum()
        (first,) = ns.autograd.grad(loss, layer.weight, create_graph=True)
        assert first.requires_grad and first.layout == ns.sparse_coo
        (second,) = ns.autograd.grad((first.to_dense() ** 2).sum(), layer.weight)
        return second

    dense = evergrad.nn.Embedding.from_pretrained(table(evergrad).weight.detach(), freeze=False)
    loss = (dense(evergrad.tensor([3, 0, 3])) ** 3).sum()
    (first,) = evergrad.autograd.grad(loss, dense.weight, create_graph=True)
    (second,) = evergrad.autograd.grad((first**2).sum(), dense.weight)
    found = program(evergrad)
    np.testing.assert_allclose(found.to_dense().numpy(), second.numpy())


def test_a_computed_table_gets_its_gradient(torch: ModuleType) -> None:
    """As numbers: rows of the op table take the gradient dense."""

    def program(ns: Any) -> Any:
        weight = ns.arange(12.0, dtype=ns.float64).reshape(4, 3).requires_grad_()
        found = ns.nn.functional.embedding(ns.tensor([3, 0, 3]), weight * 2, sparse=True)
        loss_of(found).backward()
        return weight.grad.to_dense()

    agree(program, torch)


def test_the_gradient_is_never_dense() -> None:
    layer = evergrad.nn.Embedding(200_000, 16, sparse=True)
    optimizer = evergrad.optim.SGD(layer.parameters(), lr=0.1)
    dense = layer.weight.nbytes
    numbers = evergrad.tensor([5, 199_999, 5, 77])
    before = LEDGER.live
    LEDGER.peak = before
    for _ in range(2):
        optimizer.zero_grad()
        (layer(numbers) ** 2).sum().backward()
        (layer(numbers) * 3).sum().backward()
        optimizer.step()
    assert layer.weight.grad._nnz() == 4
    assert LEDGER.peak - before < dense / 100


# -- optimizers ---------------------------------------------------------------------------------


def batches(count: int) -> Any:
    generator = np.random.default_rng(0)
    return [generator.integers(0, ROWS, generator.integers(1, 6)).tolist() for _ in range(count)]


def train(ns: Any, optimizer_name: str, options: dict[str, Any], steps: int = 50) -> Any:
    layer = table(ns)
    optimizer = getattr(ns.optim, optimizer_name)(layer.parameters(), **options)
    for numbers in batches(steps):
        optimizer.zero_grad()
        loss_of(layer(ns.tensor(numbers))).backward()
        optimizer.step()
    state = {
        name: whole(value) if hasattr(value, "layout") else value
        for name, value in optimizer.state[layer.weight].items()
    }
    return layer.weight.detach(), list(state), list(state.values())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SGD", {"lr": 0.05}),
        ("SGD", {"lr": 0.05, "maximize": True}),
        ("SGD", {"lr": 0.02, "momentum": 0.9}),
        ("SGD", {"lr": 0.02, "momentum": 0.9, "dampening": 0.3}),
        ("SGD", {"lr": 0.02, "momentum": 0.9, "nesterov": True}),
        ("Adagrad", {"lr": 0.1}),
        ("Adagrad", {"lr": 0.1, "lr_decay": 0.01, "initial_accumulator_value": 0.2, "eps": 1e-3}),
        ("Adagrad", {"lr": 0.1, "maximize": True}),
        ("SparseAdam", {"lr": 0.05}),
        ("SparseAdam", {"lr": 0.05, "betas": (0.7, 0.9), "eps": 1e-4, "maximize": True}),
    ],
)
def test_fifty_steps(name: str, options: Any, torch: ModuleType) -> None:
    steps = 12 if options.get("nesterov") or options.get("maximize") else 50
    agree(lambda ns: train(ns, name, options, steps), torch, parts, 1e-8)


def test_the_momentum_is_sparse_and_in_order(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        layer = table(ns)
        optimizer = ns.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
        for numbers in ([0, 1], [3, 0, 3], [5]):
            optimizer.zero_grad()
            loss_of(layer(ns.tensor(numbers))).backward()
            optimizer.step()
        return optimizer.state[layer.weight]["momentum_buffer"]

    agree(program, torch)


def step_once(ns: Any, name: str, **options: Any) -> None:
    layer = table(ns)
    optimizer = getattr(ns.optim, name)(layer.parameters(), **options)
    loss_of(layer(ns.tensor([1, 2]))).backward()
    optimizer.step()


@pytest.mark.parametrize(
    "name",
    ["Adadelta", "Adafactor", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop",
     "Rprop", "Muon"],
)  # fmt: skip
def test_others_refuse_in_the_same_words(name: str, torch: ModuleType) -> None:
    with pytest.raises(RuntimeError) as theirs:
        step_once(torch, name)
    assert str(refuse(lambda ns: step_once(ns, name), torch)) == str(theirs.value)


@pytest.mark.parametrize(
    "program",
    [
        lambda ns: step_once(ns, "SGD", weight_decay=0.1),
        lambda ns: step_once(ns, "Adagrad", weight_decay=0.1),
        lambda ns: ns.optim.SparseAdam([ns.eye(2).to_sparse().requires_grad_()]),
    ],
)
def test_options_that_need_dense_gradients(program: Any, torch: ModuleType) -> None:
    refuse(program, torch)


def test_a_refusal_changes_nothing() -> None:
    dense, layer = evergrad.nn.Parameter(evergrad.ones(2)), table(evergrad)
    optimizer = evergrad.optim.Adam([dense, layer.weight])
    dense.sum().backward()
    loss_of(layer(evergrad.tensor([1, 2]))).backward()
    with pytest.raises(RuntimeError, match="does not support sparse gradients"):
        optimizer.step()
    assert dense.tolist() == [1.0, 1.0] and not optimizer.state


def test_dense_and_sparse_gradients_by_turns(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        layer = table(ns)
        optimizer = ns.optim.SGD(layer.parameters(), lr=0.1, momentum=0.5)
        for sparse in (False, True, False):
            optimizer.zero_grad()
            layer.sparse = sparse
            loss_of(layer(ns.tensor([1, 2, 1]))).backward()
            optimizer.step()
        return layer.weight.detach()

    agree(program, torch)


def test_state_can_be_saved(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        layer = table(ns)
        results = []
        for name, options in (("SparseAdam", {}), ("SGD", {"lr": 0.1, "momentum": 0.9})):
            optimizer = getattr(ns.optim, name)(layer.parameters(), **options)
            for numbers in ([1, 2], [2, 3]):
                optimizer.zero_grad()
                loss_of(layer(ns.tensor(numbers))).backward()
                optimizer.step()
                saved = copy.deepcopy(optimizer.state_dict())
                optimizer = getattr(ns.optim, name)(layer.parameters(), **options)
                optimizer.load_state_dict(saved)
            results.append(layer.weight.detach().clone())
        return results

    agree(program, torch)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad(set_to_none: bool, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        layer = table(ns)
        loss_of(layer(ns.tensor([1, 2]))).backward()
        layer.zero_grad(set_to_none)
        return layer.weight.grad

    agree(program, torch)


def test_lbfgs_takes_them_dense(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        layer = table(ns)
        optimizer = ns.optim.LBFGS(layer.parameters(), lr=0.1, max_iter=3)

        def closure() -> Any:
            optimizer.zero_grad()
            loss = loss_of(layer(ns.tensor([1, 2, 1])))
            loss.backward()
            return loss

        optimizer.step(closure)
        return layer.weight.detach()

    agree(program, torch)


def test_assigning_a_sparse_gradient(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        parameter = ns.nn.Parameter(ns.ones(3))
        parameter.grad = ns.sparse_coo_tensor([[0, 2, 0]], [1.0, 2.0, 3.0], (3,))
        ns.optim.SGD([parameter], lr=0.5).step()
        return parameter.detach()

    assert plain(program(evergrad)).tolist() == plain(program(torch)).tolist()
