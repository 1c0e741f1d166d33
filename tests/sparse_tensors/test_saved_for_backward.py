"""Sparse tensors that a custom function keeps for its backward."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

import evergrad
from twins import agree


def product(ns: Any, seen: list[str]) -> Any:
    """A dense product with a sparse factor whose gradient is sparse."""

    class Product(ns.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            ctx.save_for_backward(a, b)
            return a.to_dense() @ b

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            a, b = ctx.saved_tensors
            seen.append(str(a.layout).rpartition(".")[2])
            return (grad @ b.T).sparse_mask(a), a.to_dense().T @ grad

    return Product.apply


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_a_saved_sparse_tensor_keeps_its_layout(torch: ModuleType, layout: str) -> None:
    def run(ns: Any) -> Any:
        seen: list[str] = []
        dense = ns.tensor([[0.0, 1.0], [2.0, 0.0]], dtype=ns.float64)
        a = (dense.to_sparse() if layout == "coo" else dense.to_sparse_csr()).requires_grad_()
        b = ns.arange(4.0, dtype=ns.float64).reshape(2, 2).requires_grad_()
        product(ns, seen)(a, b).square().sum().backward()
        return seen, a.grad.to_dense(), b.grad

    agree(run, torch)


def test_a_part_that_was_overwritten_is_noticed() -> None:
    a = evergrad.eye(2).to_sparse()
    b = evergrad.ones(2, 2, requires_grad=True)
    y = product(evergrad, [])(a, b)
    with evergrad.no_grad():
        a._values().mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
