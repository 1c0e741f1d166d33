"""Sparse matrices with compressed rows or columns."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

import evergrad
from twins import refuse

from .layouts import agree, dense_example, example, whole


def csr_example(ns: Any, requires_grad: bool = False) -> Any:
    made = ns.sparse_csr_tensor([0, 1, 2, 4], [2, 0, 1, 3], [8.5, -4.0, 1.5, 0.25], (3, 4))
    return made.double().requires_grad_(requires_grad)


CALLS: dict[str, Any] = {
    "itself": lambda ns, s: s,
    "plus dense": lambda ns, s: s + dense_example(ns),
    "csc plus dense": lambda ns, s: s.to_sparse_csc() + dense_example(ns) * 2,
    "to_dense": lambda ns, s: s.to_dense(),
    "to_sparse": lambda ns, s: s.to_sparse(),
    "to_sparse_coo": lambda ns, s: s.to_sparse_coo(),
    "to_sparse_csc": lambda ns, s: s.to_sparse_csc(),
    "csc to coo": lambda ns, s: s.to_sparse_csc().to_sparse_coo(),
    "csc to csr": lambda ns, s: s.to_sparse_csc().to_sparse_csr(),
    "dense to csr": lambda ns, s: dense_example(ns).tril().to_sparse_csr(),
    "dense to csc": lambda ns, s: dense_example(ns).tril().to_sparse_csc(),
    "to_sparse layout": lambda ns, s: s.to_dense().to_sparse(layout=ns.sparse_csr),
    "plus": lambda ns, s: s + s,
    "dense plus": lambda ns, s: dense_example(ns) + s,
    "times number": lambda ns, s: s * 2,
    "times itself": lambda ns, s: s * s,
    "times dense": lambda ns, s: s * dense_example(ns),
    "neg": lambda ns, s: -s,
    "abs": lambda ns, s: s.abs(),
    "sin": lambda ns, s: s.sin(),
    "relu": lambda ns, s: s.relu(),
    "float": lambda ns, s: s.float(),
    "clone": lambda ns, s: s.clone(),
    "t": lambda ns, s: s.t(),
    "transpose": lambda ns, s: s.transpose(0, 1).transpose(0, 1),
    "sum": lambda ns, s: s.sum(),
    "sum keepdim": lambda ns, s: s.sum(0, keepdim=True),
    "row": lambda ns, s: s[2],
    "element": lambda ns, s: s[2, 3],
    "matmul": lambda ns, s: s @ dense_example(ns, 4, 2),
    "dense matmul": lambda ns, s: dense_example(ns, 2, 3) @ s,
    "mv": lambda ns, s: s.mv(dense_example(ns)[0]),
    "sparse.mm": lambda ns, s: ns.sparse.mm(s, dense_example(ns, 4, 2)),
    "sparse.addmm": lambda ns, s: ns.sparse.addmm(
        ns.ones(3, 2).double(), s, dense_example(ns, 4, 2), alpha=2
    ),
    "sparse matmul": lambda ns, s: s @ s.t().to_sparse_csr(),
    "sparse_mask": lambda ns, s: dense_example(ns).sparse_mask(s),
    "sampled_addmm": lambda ns, s: ns.sparse.sampled_addmm(
        s, dense_example(ns, 3, 2), dense_example(ns, 2, 4), beta=0.5, alpha=2
    ),
    "mul_": lambda ns, s: s.clone().mul_(2),
    "facts": lambda ns, s: (
        s._nnz(), s.sparse_dim(), s.dense_dim(), s.is_sparse, s.is_sparse_csr, tuple(s.shape)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_as_in_torch(name: str, torch: ModuleType) -> None:
    agree(lambda ns: CALLS[name](ns, csr_example(ns)), torch)


LEAF_CALLS: dict[str, Any] = {
    "matmul": lambda ns, s: s @ dense_example(ns, 4, 2),
    "sparse.mm": lambda ns, s: ns.sparse.mm(s, dense_example(ns, 4, 2)),
    "to_dense": lambda ns, s: s.to_dense() * dense_example(ns),
    "sparse.addmm": lambda ns, s: ns.sparse.addmm(
        ns.ones(3, 2).double(), s, dense_example(ns, 4, 2), alpha=2
    ),
    "times number": lambda ns, s: (s * 2).to_dense(),
    "values": lambda ns, s: s.values() ** 2,
    "to_sparse_coo": lambda ns, s: s.to_sparse_coo().to_dense() * dense_example(ns),
}


@pytest.mark.parametrize("name", LEAF_CALLS)
def test_gradient_of_a_leaf(name: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        leaf = csr_example(ns).clone().detach().requires_grad_()
        LEAF_CALLS[name](ns, leaf).sum().backward()
        return leaf.grad

    agree(program, torch, whole)


CONSTRUCTIONS: dict[str, Any] = {
    "no size": lambda ns: ns.sparse_csr_tensor([0, 1, 2], [2, 0], [8.0, 4.0]),
    "int32": lambda ns: ns.sparse_csr_tensor(
        ns.tensor([0, 1, 2], dtype=ns.int32), ns.tensor([2, 0], dtype=ns.int32), [8.0, 4.0], (2, 3)
    ),
    "dtype": lambda ns: ns.sparse_csr_tensor([0, 1], [0], [1], (1, 2), dtype=ns.float32),
    "csc": lambda ns: ns.sparse_csc_tensor([0, 1, 2], [1, 0], [8.0, 4.0], (3, 2)),
    "by layout": lambda ns: ns.sparse_compressed_tensor(
        [0, 1, 2], [2, 0], [8.0, 4.0], (2, 3), layout=ns.sparse_csr
    ),
}


@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_constructing(name: str, torch: ModuleType) -> None:
    agree(CONSTRUCTIONS[name], torch)


def checked(ns: Any, *parts: Any) -> Any:
    return ns.sparse_csr_tensor(*parts, [1.0, 2.0], (2, 2), check_invariants=True)


REFUSED: dict[str, Any] = {
    "length of pointers": lambda ns: checked(ns, [0, 2], [0, 1]),
    "first pointer": lambda ns: checked(ns, [1, 1, 2], [0, 1]),
    "last pointer": lambda ns: checked(ns, [0, 1, 3], [0, 1]),
    "pointers going back": lambda ns: checked(ns, [0, 3, 2], [0, 1]),
    "columns out of order": lambda ns: checked(ns, [0, 2, 2], [1, 0]),
    "column twice": lambda ns: checked(ns, [0, 2, 2], [0, 0]),
    "column outside": lambda ns: checked(ns, [0, 1, 2], [0, 2]),
    "negative column": lambda ns: checked(ns, [0, 1, 2], [0, -1]),
    "few columns": lambda ns: checked(ns, [0, 1, 2], [0]),
    "exp": lambda ns: csr_example(ns).exp() if ns is evergrad else example(ns).exp(),
    "plus number": lambda ns: csr_example(ns) + 1,
    "indices": lambda ns: csr_example(ns).indices(),
    "coalesce": lambda ns: csr_example(ns).coalesce(),
    "is_coalesced": lambda ns: csr_example(ns).is_coalesced(),
    "columns of csr": lambda ns: csr_example(ns).ccol_indices(),
    "rows of csc": lambda ns: csr_example(ns).t().crow_indices(),
    "sum": lambda ns: csr_example(ns).sum(0),
    "sparse.sum": lambda ns: ns.sparse.sum(csr_example(ns)),
    "strides": lambda ns: csr_example(ns).stride(),
    "numpy": lambda ns: csr_example(ns).numpy(),
    "shapes of a product": lambda ns: csr_example(ns) @ dense_example(ns),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, torch: ModuleType) -> None:
    refuse(REFUSED[name], torch)


@pytest.mark.parametrize("options", [{}, {"upper": False}, {"unitriangular": True}])
def test_a_compressed_triangle_is_solved(torch: ModuleType, options: Any) -> None:
    def run(ns: Any) -> Any:
        matrix = ns.tensor([[2.0, 1.0, 0.0], [0.5, 4.0, 3.0], [1.0, 0.0, 5.0]], dtype=ns.float64)
        matrix = matrix.triu() if options.get("upper", True) else matrix.tril()
        b = ns.arange(6.0, dtype=ns.float64).reshape(3, 2)
        return ns.triangular_solve(b, matrix.to_sparse_csr(), **options).solution

    agree(run, torch)
