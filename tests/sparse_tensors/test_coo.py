"""Sparse tensors in coordinate form: what they are, and what can be computed with them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad
from twins import refuse

from .layouts import (
    NUMBERS,
    PLACES,
    SHAPE,
    agree,
    dense_example,
    example,
    hybrid_example,
    parts,
    whole,
)

CALLS: dict[str, Any] = {
    "itself": lambda ns, s: s,
    "coalesce": lambda ns, s: s.coalesce(),
    "to_dense": lambda ns, s: s.to_dense(),
    "twice": lambda ns, s: s + s,
    "plus coalesced": lambda ns, s: s + s.coalesce(),
    "coalesced plus": lambda ns, s: s.coalesce() + s,
    "plus other": lambda ns, s: s + ns.sparse_coo_tensor([[0, 2], [0, 3]], [1.0, 2.0], SHAPE),
    "plus alpha": lambda ns, s: s.add(s.coalesce(), alpha=3),
    "minus": lambda ns, s: s - s.coalesce(),
    "dense plus": lambda ns, s: dense_example(ns) + s,
    "dense minus": lambda ns, s: dense_example(ns) - s,
    "dense plus alpha": lambda ns, s: ns.add(dense_example(ns), s, alpha=0.5),
    "times number": lambda ns, s: s * 2.5,
    "number times": lambda ns, s: 2.5 * s,
    "times 0-d": lambda ns, s: s * ns.tensor(2.0),
    "times dense": lambda ns, s: s * dense_example(ns),
    "dense times": lambda ns, s: dense_example(ns) * s,
    "times row": lambda ns, s: s * dense_example(ns)[0],
    "times column": lambda ns, s: s * dense_example(ns)[:, :1],
    "times sparse": lambda ns, s: s.coalesce() * dense_example(ns).tril().to_sparse(),
    "over number": lambda ns, s: s / 2,
    "floor over": lambda ns, s: s // 2,
    "neg": lambda ns, s: -s,
    "abs": lambda ns, s: s.abs(),
    "relu": lambda ns, s: ns.relu(s),
    "sin": lambda ns, s: ns.sin(s),
    "tanh": lambda ns, s: s.tanh(),
    "square": lambda ns, s: s**2,
    "sign": lambda ns, s: s.sign(),
    "isnan": lambda ns, s: s.isnan(),
    "float": lambda ns, s: s.float(),
    "to": lambda ns, s: s.to(ns.float32),
    "clone": lambda ns, s: s.clone(),
    "t": lambda ns, s: s.t(),
    "T": lambda ns, s: s.T,
    "transpose": lambda ns, s: s.transpose(1, 0),
    "permute": lambda ns, s: ns.permute(s, (1, 0)),
    "unsqueeze": lambda ns, s: s.unsqueeze(1),
    "sum": lambda ns, s: s.sum(),
    "sum 0": lambda ns, s: s.sum(0),
    "sum 1 keepdim": lambda ns, s: s.sum(1, keepdim=True),
    "sparse.sum": lambda ns, s: ns.sparse.sum(s),
    "sparse.sum 1": lambda ns, s: ns.sparse.sum(s, 1),
    "sparse.sum all": lambda ns, s: ns.sparse.sum(s, (0, 1)),
    "sparse.sum float32": lambda ns, s: ns.sparse.sum(s, 0, dtype=ns.float32),
    "norm": lambda ns, s: s.norm(),
    "norm function": lambda ns, s: (ns.norm(s), ns.norm(s, 1)),
    "row": lambda ns, s: s[0],
    "element": lambda ns, s: s[0, 2],
    "iterate": lambda ns, s: list(s),
    "select": lambda ns, s: s.select(1, 2),
    "index_select": lambda ns, s: s.index_select(1, ns.tensor([2, 0, 2])),
    "cat": lambda ns, s: ns.cat([s, s]),
    "cat 1": lambda ns, s: ns.cat([s, s.coalesce()], 1),
    "stack": lambda ns, s: ns.stack([s, s]),
    "mm": lambda ns, s: ns.mm(s, dense_example(ns).t()),
    "matmul": lambda ns, s: s @ dense_example(ns, 4, 2),
    "dense matmul": lambda ns, s: dense_example(ns, 2, 3) @ s,
    "mv": lambda ns, s: s.mv(dense_example(ns)[0]),
    "matmul vector": lambda ns, s: s @ dense_example(ns)[0],
    "vector matmul": lambda ns, s: dense_example(ns)[:, 0] @ s,
    "addmm": lambda ns, s: ns.addmm(ns.ones(3, 3).double(), s, dense_example(ns).t(), beta=2),
    "spmm": lambda ns, s: ns.spmm(s, dense_example(ns, 4, 2)),
    "smm": lambda ns, s: ns.smm(s, dense_example(ns, 4, 2)),
    "sparse.mm": lambda ns, s: ns.sparse.mm(s, dense_example(ns, 4, 2)),
    "sparse.mm sparse": lambda ns, s: ns.sparse.mm(s, s.t()),
    "sparse matmul": lambda ns, s: s @ s.t(),
    "sparse.addmm": lambda ns, s: ns.sparse.addmm(
        ns.ones(3, 2).double(), s, dense_example(ns, 4, 2), beta=0.5, alpha=3
    ),
    "softmax": lambda ns, s: ns.sparse.softmax(s, 1),
    "softmax 0": lambda ns, s: ns.sparse.softmax(s, 0),
    "log_softmax": lambda ns, s: ns.sparse.log_softmax(s, -1),
    "softmax float32": lambda ns, s: ns.sparse.softmax(s, 1, dtype=ns.float32),
    "sparse_mask": lambda ns, s: dense_example(ns).sparse_mask(s),
    "sparse_mask sparse": lambda ns, s: s.sparse_mask(dense_example(ns).tril().to_sparse()),
    "to_sparse": lambda ns, s: s.to_dense().to_sparse(),
    "to_sparse 1": lambda ns, s: s.to_dense().to_sparse(1),
    "to_sparse_csr": lambda ns, s: s.to_sparse_csr(),
    "to_sparse_csc": lambda ns, s: s.to_sparse_csc(),
    "zeros_like": lambda ns, s: ns.zeros_like(s),
    "zero_": lambda ns, s: s.clone().zero_(),
    "mul_": lambda ns, s: s.clone().mul_(3),
    "imul": lambda ns, s: s.clone().__imul__(3),
    "add_": lambda ns, s: s.clone().add_(s),
    "sin_": lambda ns, s: s.coalesce().clone().sin_(),
    "copy_": lambda ns, s: s.clone().copy_(s.coalesce()),
    "dense add_": lambda ns, s: dense_example(ns).add_(s, alpha=2),
    "nnz": lambda ns, s: (s._nnz(), s.sparse_dim(), s.dense_dim(), s.is_sparse, s.is_sparse_csr),
    "size": lambda ns, s: (tuple(s.shape), s.size(1), s.numel(), s.ndim, len(s)),
    "stride": lambda ns, s: (s.stride(), s.is_contiguous(), s.is_leaf, s.requires_grad),
}

# Results that PyTorch no longer knows to be coalesced, though they are.
FORGOTTEN = {"unsqueeze", "sum 1 keepdim", "smm", "mul_", "imul"}


@pytest.mark.parametrize("coalesced", [False, True], ids=["uncoalesced", "coalesced"])
@pytest.mark.parametrize("name", CALLS)
def test_as_in_torch(name: str, coalesced: bool, torch: ModuleType) -> None:
    read = whole if name in FORGOTTEN else parts
    agree(lambda ns: CALLS[name](ns, example(ns, coalesced)), torch, read)


HYBRID_CALLS: dict[str, Any] = {
    "coalesce": lambda ns, s: s.coalesce(),
    "to_dense": lambda ns, s: s.to_dense(),
    "plus": lambda ns, s: s + s.coalesce(),
    "times dense": lambda ns, s: s * (ns.arange(36.0).double().reshape(3, 4, 3) / 5),
    "sum 0": lambda ns, s: ns.sparse.sum(s, 0),
    "sum 2": lambda ns, s: ns.sparse.sum(s, 2),
    "sum 0, 1": lambda ns, s: ns.sparse.sum(s, (0, 1)),
    "sum 1, 2": lambda ns, s: ns.sparse.sum(s, (1, 2)),
    "transpose": lambda ns, s: s.transpose(0, 1),
    "softmax 0": lambda ns, s: ns.sparse.softmax(s, 0),
    "softmax 2": lambda ns, s: ns.sparse.softmax(s, 2),
    "index_select 0": lambda ns, s: s.index_select(0, ns.tensor([1, 0])),
    "index_select 2": lambda ns, s: s.index_select(2, ns.tensor([2, 0])),
    "cat 0": lambda ns, s: ns.cat([s, s], 0),
    "cat 2": lambda ns, s: ns.cat([s, s], 2),
    "row": lambda ns, s: s[2],
    "element": lambda ns, s: s[0, 2],
    "dims": lambda ns, s: (s.sparse_dim(), s.dense_dim(), tuple(s.shape)),
}


@pytest.mark.parametrize("name", HYBRID_CALLS)
def test_hybrid_as_in_torch(name: str, torch: ModuleType) -> None:
    agree(lambda ns: HYBRID_CALLS[name](ns, hybrid_example(ns)), torch)


CONSTRUCTIONS: dict[str, Any] = {
    "lists": lambda ns: ns.sparse_coo_tensor([[0, 2]], [1.0, 2.0]),
    "integers": lambda ns: ns.sparse_coo_tensor([[0]], [1], (2,)),
    "float indices": lambda ns: ns.sparse_coo_tensor(ns.tensor([[0.5, 1.0]]), [1.0, 2.0], (2,)),
    "dtype": lambda ns: ns.sparse_coo_tensor([[0, 1]], [1, 2], (2,), dtype=ns.float16),
    "hybrid": lambda ns: ns.sparse_coo_tensor([[0, 1]], [[1.0, 2.0], [3.0, 4.0]]),
    "size alone": lambda ns: ns.sparse_coo_tensor(size=(2, 3)),
    "size as first": lambda ns: ns.sparse_coo_tensor((2, 3)),
    "said coalesced": lambda ns: ns.sparse_coo_tensor([[0, 0]], [1.0, 2], (2,), is_coalesced=True),
    "one element": lambda ns: ns.sparse_coo_tensor([[1]], [1.0], (2,)),
    "diagonals": lambda ns: ns.sparse.spdiags(
        ns.arange(1, 7.0).reshape(2, 3), ns.tensor([0, 1]), (3, 3)
    ),
    "diagonals below": lambda ns: ns.sparse.spdiags(
        ns.arange(1, 9.0).reshape(2, 4), ns.tensor([-1, 2]), (3, 4), layout=ns.sparse_csr
    ),
}


@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_constructing(name: str, torch: ModuleType) -> None:
    agree(CONSTRUCTIONS[name], torch)


REFUSED: dict[str, Any] = {
    "few values": lambda ns: ns.sparse_coo_tensor([[0, 1]], [1.0], (2,)),
    "dimensions": lambda ns: ns.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (2, 2)),
    "flat indices": lambda ns: ns.sparse_coo_tensor([0, 1], [1.0, 2.0], (2, 2)),
    "element shape": lambda ns: ns.sparse_coo_tensor([[0, 1]], [[1.0], [2.0]], (2, 2)),
    "negative": lambda ns: ns.sparse_coo_tensor([[0, -1]], [1.0, 2.0]),
    "outside": lambda ns: ns.sparse_coo_tensor([[0, 5]], [1.0, 2.0], (2,), check_invariants=True),
    "not coalesced": lambda ns: ns.sparse_coo_tensor(
        [[0, 0]], [1.0, 2.0], (2,), is_coalesced=True, check_invariants=True
    ),
    "indices": lambda ns: example(ns).indices(),
    "values": lambda ns: example(ns).values(),
    "plus dense": lambda ns: example(ns) + dense_example(ns),
    "plus number": lambda ns: example(ns) + 1,
    "minus dense": lambda ns: example(ns) - dense_example(ns),
    "over dense": lambda ns: example(ns) / dense_example(ns),
    "exp": lambda ns: example(ns).exp(),
    "cos": lambda ns: ns.cos(example(ns)),
    "mean": lambda ns: example(ns).mean(),
    "max": lambda ns: example(ns).max(),
    "equal": lambda ns: example(ns) == example(ns),
    "clamp_": lambda ns: example(ns).clamp_(0, 1),
    "fill_": lambda ns: example(ns).fill_(1),
    "part": lambda ns: example(ns)[0:1],
    "reshape": lambda ns: example(ns).reshape(4, 3),
    "softmax": lambda ns: ns.softmax(example(ns), 0),
    "power 0": lambda ns: example(ns) ** 0,
    "numpy": lambda ns: example(ns).numpy(),
    "truth": lambda ns: bool(example(ns)),
    "data_ptr": lambda ns: example(ns).data_ptr(),
    "ones_like": lambda ns: ns.ones_like(example(ns)),
    "dense copy_": lambda ns: dense_example(ns).copy_(example(ns)),
    "shapes of a sum": lambda ns: example(ns) + example(ns).t(),
    "shape beside dense": lambda ns: dense_example(ns)[:1] + example(ns),
    "shapes of a product": lambda ns: example(ns) @ dense_example(ns),
    "dtypes of a product": lambda ns: example(ns) @ dense_example(ns).t().float(),
    "dense transpose": lambda ns: hybrid_example(ns).transpose(0, 2),
    "cat with dense": lambda ns: ns.cat([example(ns), dense_example(ns)]),
    "integer softmax": lambda ns: ns.sparse.softmax(example(ns).long(), 0),
    "sum of dense": lambda ns: ns.sparse.sum(dense_example(ns)),
    "dense is_coalesced": lambda ns: dense_example(ns).is_coalesced(),
    "dense coalesce": lambda ns: dense_example(ns).coalesce(),
    "dense indices": lambda ns: dense_example(ns).indices(),
    "dense values": lambda ns: dense_example(ns).values(),
    "dense crow_indices": lambda ns: dense_example(ns).crow_indices(),
    "dense mask": lambda ns: dense_example(ns).sparse_mask(dense_example(ns)),
    "to_sparse again": lambda ns: example(ns).to_sparse(1),
    "leaf in place": lambda ns: example(ns, requires_grad=True).mul_(2),
    "integer gradient": lambda ns: example(ns).long().requires_grad_(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, torch: ModuleType) -> None:
    refuse(REFUSED[name], torch)


def test_nothing_is_made_dense_unasked() -> None:
    with pytest.raises(NotImplementedError, match=r"'exp'.*'SparseCPU'.*\n.*to_dense"):
        example(evergrad).exp()


@pytest.mark.parametrize(
    "make",
    [
        example,
        lambda ns: example(ns, True).float(),
        lambda ns: example(ns, requires_grad=True),
        hybrid_example,
        lambda ns: ns.sparse_coo_tensor(size=(2, 3)),
        lambda ns: ns.sparse_coo_tensor([[0]], [1], (2,)),
        lambda ns: ns.sparse_coo_tensor(ns.arange(2000).reshape(2, 1000), ns.ones(1000)),
        lambda ns: example(ns).to_sparse_csr(),
        lambda ns: example(ns).float().to_sparse_csc(),
    ],
)
def test_text(make: Any, torch: ModuleType) -> None:
    assert repr(make(evergrad)).replace("evergrad.", "torch.") == repr(make(torch))


def test_is_a_tensor() -> None:
    sparse = example(evergrad)
    assert isinstance(sparse, evergrad.Tensor) and evergrad.is_tensor(sparse)
    assert sparse.layout is evergrad.sparse_coo and sparse.device == "cpu"
    assert sparse.is_leaf and sparse.grad is None and sparse.grad_fn is None


@pytest.mark.parametrize("how", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc"])
def test_copies(how: Any, layout: str) -> None:
    source = example(evergrad).to_sparse(layout=getattr(evergrad, layout)).requires_grad_()
    made = how(source)
    assert made is not source and made.requires_grad and made.is_leaf
    assert made.layout is source.layout
    np.testing.assert_array_equal(made.detach().to_dense().numpy(), source.detach().to_dense())


def test_detach_shares_memory() -> None:
    sparse = example(evergrad, True)
    sparse.detach()._values().fill_(7)
    assert sparse._values().tolist() == [7.0] * 3


def test_checks_can_be_switched_on(torch: ModuleType) -> None:
    def wrong(ns: Any) -> Any:
        with ns.sparse.check_sparse_tensor_invariants():
            return ns.sparse_coo_tensor([[0, 5]], [1.0, 2.0], (2,))

    refuse(wrong, torch)
    switch = evergrad.sparse.check_sparse_tensor_invariants
    assert not switch.is_enabled()
    switch.enable()
    try:
        assert switch.is_enabled()
    finally:
        switch.disable()


def test_a_place_outside_is_noticed_when_used() -> None:
    sparse = evergrad.sparse_coo_tensor([[0, 5]], [1.0, 2.0], (2,), check_invariants=False)
    with pytest.raises(IndexError, match="index 5 is out of bounds"):
        sparse.to_dense()


def test_values_are_shared_with_what_was_given() -> None:
    values = evergrad.tensor(NUMBERS)
    sparse = evergrad.sparse_coo_tensor(PLACES, values, SHAPE)
    values.zero_()
    assert sparse._values().tolist() == [0.0] * 4


# Checked unless declined: a negative index would count from the end.
OUT_OF_RANGE: dict[str, Callable[[], object]] = {
    "negative": lambda: evergrad.sparse_coo_tensor([[-1]], [1.0], (3,)),
    "second dimension": lambda: evergrad.sparse_coo_tensor([[0], [-2]], [1.0], (3, 3)),
    "too large": lambda: evergrad.sparse_coo_tensor([[3]], [1.0], (3,)),
    "hybrid": lambda: evergrad.sparse_coo_tensor([[0, -1]], [[1.0], [2.0]], (3, 1)),
    "no extent": lambda: evergrad.sparse_coo_tensor([[0]], [1.0], (0,)),
    "coalesced": lambda: evergrad.sparse_coo_tensor([[-1, 0]], [1.0, 2.0], (3,), is_coalesced=True),
    "csr column": lambda: evergrad.sparse_csr_tensor([0, 1, 2], [0, -1], [1.0, 2.0], (2, 2)),
    "csr column beyond": lambda: evergrad.sparse_csr_tensor([0, 1, 2], [0, 2], [1.0, 2.0], (2, 2)),
    "csr pointers fall": lambda: evergrad.sparse_csr_tensor([0, 3, 2], [0, 1], [1.0, 2.0], (2, 2)),
    "csr pointers end": lambda: evergrad.sparse_csr_tensor([0, 1, 1], [0, 1], [1.0, 2.0], (2, 2)),
    "csc row": lambda: evergrad.sparse_csc_tensor([0, 1, 2], [0, -1], [1.0, 2.0], (2, 2)),
    "bsr block": lambda: evergrad.sparse_bsr_tensor([0, 1], [-1], [[[1.0]]], (1, 1)),
}


@pytest.mark.parametrize("made", OUT_OF_RANGE.values(), ids=list(OUT_OF_RANGE))
def test_indices_out_of_range_are_refused(made: Callable[[], object]) -> None:
    with pytest.raises(RuntimeError):
        made()
