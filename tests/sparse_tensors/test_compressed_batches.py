"""Compressed sparse tensors of blocks, and batches of them."""

from __future__ import annotations

import copy
import io
import pickle
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad
from evergrad import memory
from evergrad.autograd import gradcheck, gradgradcheck
from twins import refuse

from .layouts import agree, whole


def numbers(ns: Any, *shape: int) -> Any:
    count = int(np.prod(shape))
    return (ns.arange(count, dtype=ns.float64).reshape(shape) + 1) / 7


def batched_csr(ns: Any) -> Any:
    """2 matrices of 3 x 4."""
    return ns.sparse_csr_tensor(
        [[0, 1, 2, 4], [0, 2, 3, 4]], [[2, 0, 1, 3], [0, 3, 1, 2]],
        [[8.5, -4.0, 1.5, 0.25], [1.0, 2.0, 3.0, 4.0]], (2, 3, 4), dtype=ns.float64,
    )  # fmt: skip


def bsr(ns: Any) -> Any:
    """2 x 3 blocks of 2 x 2."""
    return ns.sparse_bsr_tensor([0, 1, 3], [1, 0, 2], numbers(ns, 3, 2, 2), (4, 6))


def batched_bsr(ns: Any) -> Any:
    places = [[0, 1, 3], [0, 2, 3]], [[1, 0, 2], [0, 1, 1]]
    return ns.sparse_bsr_tensor(*places, numbers(ns, 2, 3, 2, 2), (2, 4, 6))


def bsc(ns: Any) -> Any:
    return ns.sparse_bsc_tensor([0, 1, 3], [1, 0, 2], numbers(ns, 3, 2, 2), (6, 4))


def hybrid(ns: Any) -> Any:
    """A matrix whose elements are vectors of 2."""
    return ns.sparse_csr_tensor([0, 1, 2, 4], [2, 0, 1, 3], numbers(ns, 4, 2), (3, 4, 2))


def two_matrices(ns: Any) -> Any:
    return ns.tensor([[[1.0, 0], [0, 2]], [[0, 3], [0, 4]]])


MAKERS = {f.__name__: f for f in (batched_csr, bsr, batched_bsr, bsc, hybrid)}
ALL = tuple(MAKERS)

CALLS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "itself": (lambda ns, s: s, ALL),
    "to_dense": (lambda ns, s: s.to_dense(), ALL),
    "to_sparse_coo": (lambda ns, s: s.to_sparse_coo(), ALL),
    "to_sparse_csr": (lambda ns, s: s.to_sparse_csr(), ("batched_csr", "hybrid")),
    "to_sparse_csc": (lambda ns, s: s.to_sparse_csc(), ("batched_csr", "hybrid")),
    "to_sparse_bsr": (lambda ns, s: s.to_sparse_bsr((2, 2)), ("bsr", "batched_bsr")),
    "to_sparse_bsc": (lambda ns, s: s.to_sparse_bsc((2, 2)), ("bsr", "batched_bsr")),
    "bsc to bsr": (lambda ns, s: s.to_sparse_bsr((2, 2)), ("bsc",)),
    "bsr by layout": (lambda ns, s: s.to_sparse(layout=ns.sparse_bsr, blocksize=(2, 2)), ("bsr",)),
    "plus itself": (lambda ns, s: s + s, ("batched_csr", "bsr", "batched_bsr", "bsc")),
    "times number": (lambda ns, s: s * 2, ALL),
    "neg": (lambda ns, s: -s, ALL),
    "abs": (lambda ns, s: s.abs(), ALL),
    "sin": (lambda ns, s: s.sin(), ALL),
    "relu": (lambda ns, s: s.relu(), ALL),
    "float": (lambda ns, s: s.float(), ALL),
    "clone": (lambda ns, s: s.clone(), ALL),
    "transpose": (lambda ns, s: s.transpose(-2, -1), ("batched_csr", "bsr", "batched_bsr", "bsc")),
    "transpose twice": (lambda ns, s: s.transpose(-2, -1).transpose(-2, -1), ("batched_bsr",)),
    "sum": (lambda ns, s: s.sum(), ALL),
    "one matrix": (lambda ns, s: s[1], ("batched_csr", "batched_bsr")),
    "row": (lambda ns, s: s[1, 2].to_dense(), ("batched_csr", "batched_bsr")),
    "row of blocks": (lambda ns, s: s[1].to_dense(), ("bsr",)),
    "element": (lambda ns, s: s[1, 2, 1], ("batched_csr", "batched_bsr")),
    "mask": (lambda ns, s: numbers(ns, *s.shape).sparse_mask(s), ALL[:4]),
    "dense plus": (lambda ns, s: numbers(ns, *s.shape) + s, ("batched_csr",)),
    "zeros_like": (lambda ns, s: ns.zeros_like(s), ("batched_csr", "bsr", "batched_bsr", "bsc")),
    "mul_": (lambda ns, s: s.clone().mul_(2), ("batched_csr", "bsr", "batched_bsr", "bsc")),
    "matmul": (lambda ns, s: s @ numbers(ns, 6, 5), ("bsr",)),
    "mm": (lambda ns, s: ns.mm(s, numbers(ns, 6, 5)), ("bsr",)),
    "mv": (lambda ns, s: s.mv(numbers(ns, 6)), ("bsr",)),
    "dense matmul": (lambda ns, s: numbers(ns, 2, 6) @ s, ("bsc",)),
    "addmm": (
        lambda ns, s: ns.addmm(numbers(ns, 4, 5), s, numbers(ns, 6, 5), beta=2, alpha=0.5), ("bsr",)
    ),
    "sparse.mm": (lambda ns, s: ns.sparse.mm(s, numbers(ns, 6, 5)), ("bsr",)),
    "sparse.addmm": (
        lambda ns, s: ns.sparse.addmm(numbers(ns, 4, 5), s, numbers(ns, 6, 5)), ("bsr",)
    ),
    "linear": (lambda ns, s: ns.nn.functional.linear(numbers(ns, 3, 6), s), ("bsr",)),
    "sampled_addmm": (
        lambda ns, s: ns.sparse.sampled_addmm(
            s, numbers(ns, 2, 3, 5), numbers(ns, 2, 5, 4), beta=0.5, alpha=2
        ),
        ("batched_csr",),
    ),
    "facts": (
        lambda ns, s: (
            s._nnz(), s.sparse_dim(), s.dense_dim(), s.is_sparse, s.is_sparse_csr, tuple(s.shape),
            s.numel(), str(s.layout).rpartition(".")[2],
        ),
        ALL,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "maker"), [(n, m) for n, (_, ms) in CALLS.items() for m in ms])
def test_as_in_torch(name: str, maker: str, torch: ModuleType) -> None:
    agree(lambda ns: CALLS[name][0](ns, MAKERS[maker](ns)), torch)


@pytest.mark.parametrize("maker", ALL)
def test_text_as_in_torch(maker: str, torch: ModuleType) -> None:
    for change in (lambda s: s, lambda s: s.float(), lambda s: s.detach().requires_grad_()):
        theirs = repr(change(MAKERS[maker](torch))).replace("torch.", "evergrad.")
        assert repr(change(MAKERS[maker](evergrad))) == theirs


CONSTRUCTIONS: dict[str, Any] = {
    "bsr without size": lambda ns: ns.sparse_bsr_tensor([0, 1, 3], [1, 0, 2], numbers(ns, 3, 2, 3)),
    "bsc without size": lambda ns: ns.sparse_bsc_tensor([0, 1, 3], [1, 0, 2], numbers(ns, 3, 2, 3)),
    "batch without size": lambda ns: ns.sparse_csr_tensor([[0, 1, 2]], [[2, 0]], [[1.0, 2.0]]),
    "by layout": lambda ns: ns.sparse_compressed_tensor(
        [0, 1], [0], [[[1.0, 2.0]]], layout=ns.sparse_bsr
    ),
    "int32": lambda ns: ns.sparse_bsr_tensor(
        ns.tensor([0, 1], dtype=ns.int32), ns.tensor([1], dtype=ns.int32), [[[1, 2]]], (1, 4)
    ),
    "two batch dimensions": lambda ns: ns.sparse_csr_tensor(
        [[[0, 1]], [[0, 1]]], [[[2]], [[0]]], [[[1.0]], [[2.0]]], (2, 1, 1, 3)
    ),
    "dense batch to csr": lambda ns: two_matrices(ns).to_sparse_csr(),
    "dense batch to csc": lambda ns: two_matrices(ns).to_sparse_csc(),
    "dense to bsr": lambda ns: ns.eye(6).to_sparse_bsr((2, 3)),
    "dense to bsc": lambda ns: ns.eye(6).to_sparse_bsc((3, 2)),
    "square blocks": lambda ns: ns.eye(6).to_sparse_bsr(3),
    "dense batch to bsr": lambda ns: ns.stack([ns.eye(4), ns.eye(4).flip(0)]).to_sparse_bsr((2, 2)),
    "csr to bsr": lambda ns: ns.eye(4).to_sparse_csr().to_sparse_bsr((2, 2)),
    "coo to bsr": lambda ns: ns.eye(4).to_sparse().to_sparse_bsr((2, 2)),
    "csr to bsc": lambda ns: ns.ones(4, 4).tril().to_sparse_csr().to_sparse_bsc((2, 2)),
    "dense dimension": lambda ns: ns.ones(2, 3, 4).to_sparse_csr(dense_dim=1),
    "empty": lambda ns: ns.zeros(2, 4, 4).to_sparse_bsr((2, 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_constructing(name: str, torch: ModuleType) -> None:
    agree(CONSTRUCTIONS[name], torch)


def checked(ns: Any, *parts: Any, size: Any = (4, 6)) -> Any:
    return ns.sparse_bsr_tensor(*parts, size, check_invariants=True)


REFUSED: dict[str, Any] = {
    "values without blocks": lambda ns: ns.sparse_bsr_tensor([0, 1], [0], [1.0]),
    "not divisible": lambda ns: checked(
        ns, [0, 1, 3], [1, 0, 2], numbers(ns, 3, 2, 2), size=(5, 6)
    ),
    "column outside": lambda ns: checked(ns, [0, 1, 3], [1, 0, 3], numbers(ns, 3, 2, 2)),
    "columns out of order": lambda ns: checked(ns, [0, 1, 3], [1, 2, 0], numbers(ns, 3, 2, 2)),
    "more values": lambda ns: checked(ns, [0, 1, 3], [1, 0, 2], numbers(ns, 4, 2, 2)),
    "batches differ": lambda ns: ns.sparse_csr_tensor(
        [[0, 1, 2]], [[0, 1]], [[1.0, 2.0]], (3, 2, 2), check_invariants=True
    ),
    "last pointer of a batch": lambda ns: ns.sparse_csr_tensor(
        [[0, 2], [0, 1]], [[0, 1], [0, 1]], [[1.0, 2.0]] * 2, (2, 1, 2), check_invariants=True
    ),
    "counts differ": lambda ns: ns.tensor([[[1.0, 0], [1, 0]], [[0, 0], [1, 0]]]).to_sparse_csr(),
    "block does not divide": lambda ns: ns.ones(2, 3, 4).to_sparse_bsr((2, 2)),
    "no blocksize": lambda ns: ns.eye(4).to_sparse(layout=ns.sparse_bsr),
    "blocksize of csr": lambda ns: ns.eye(4).to_sparse(layout=ns.sparse_csr, blocksize=(2, 2)),
    "transposed batch": lambda ns: batched_csr(ns).transpose(0, 1),
    "t of a batch": lambda ns: batched_csr(ns).t(),
    "mm of a batch": lambda ns: ns.mm(batched_csr(ns), numbers(ns, 4, 2)),
    "sparse.mm of a batch": lambda ns: ns.sparse.mm(batched_csr(ns), numbers(ns, 4, 2)),
    "shapes of a product": lambda ns: bsr(ns) @ numbers(ns, 4, 2),
    "strides": lambda ns: bsr(ns).stride(),
    "rows of bsc": lambda ns: bsc(ns).crow_indices(),
    "numpy": lambda ns: bsr(ns).numpy(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, torch: ModuleType) -> None:
    refuse(REFUSED[name], torch)


LEAF_CALLS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "matmul": (lambda ns, s: s @ numbers(ns, 6, 2), ("bsr",)),
    "mv": (lambda ns, s: s.mv(numbers(ns, 6)), ("bsr",)),
    "linear": (lambda ns, s: ns.nn.functional.linear(numbers(ns, 3, 6), s), ("bsr",)),
    "addmm": (lambda ns, s: ns.addmm(numbers(ns, 4, 2), s, numbers(ns, 6, 2)), ("bsr",)),
    "sum": (lambda ns, s: s.sum(), ("batched_csr", "bsr", "batched_bsr", "bsc")),
    "dense plus": (lambda ns, s: numbers(ns, *s.shape) + s, ("batched_csr",)),
}


@pytest.mark.parametrize(
    ("name", "maker"), [(n, m) for n, (_, ms) in LEAF_CALLS.items() for m in ms]
)
def test_gradient_of_a_leaf(name: str, maker: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        leaf = MAKERS[maker](ns).clone().detach().requires_grad_()
        (LEAF_CALLS[name][0](ns, leaf) ** 2).sum().backward()
        return leaf.grad

    agree(program, torch, whole)


def test_gradient_of_values(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        values = numbers(ns, 3, 2, 2).requires_grad_()
        made = ns.sparse_bsr_tensor([0, 1, 3], [1, 0, 2], values, (4, 6))
        ((made @ numbers(ns, 6, 5)) ** 2).sum().backward()
        return values.grad

    agree(program, torch)


# -- products, against the dense ones -----------------------------------------------------------

PAIRS: dict[str, Any] = {
    "same batch": lambda s, x: s @ x,
    "shared dense": lambda s, x: s @ x[0],
    "bmm": lambda s, x: evergrad.bmm(s, x),
    "baddbmm": lambda s, x: evergrad.baddbmm(s.to_dense().sum(-1, True), s, x, beta=2, alpha=3),
    "dense first": lambda s, x: x.transpose(-2, -1) @ s.transpose(-2, -1),
    "one matrix, many dense": lambda s, x: s[0] @ x,
    "matrices broadcast": lambda s, x: s @ x.unsqueeze(1),
    "vector": lambda s, x: s @ x[0, :, 0],
    "no columns": lambda s, x: s @ x[..., :0],
}


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("maker", ["batched_csr", "batched_bsr"])
def test_products_of_batches(maker: str, pair: str) -> None:
    pattern = MAKERS[maker](evergrad)
    dense = numbers(evergrad, 2, pattern.shape[-1], 3)

    def found(values: Any, x: Any) -> Any:
        return PAIRS[pair](pattern.with_elements(values), x)

    values = pattern.values().detach().requires_grad_()
    expected = PAIRS[pair](pattern.to_dense(), dense)
    result = found(values, dense)
    assert result.shape == expected.shape
    assert evergrad.allclose(result, expected, rtol=1e-12, atol=1e-12)
    if result.numel():
        dense.requires_grad_()
        assert gradcheck(found, (values, dense))
        assert gradgradcheck(found, (values, dense))


@pytest.mark.parametrize("maker", ["batched_csr", "bsr", "batched_bsr", "bsc"])
def test_gradients_of_a_batched_leaf_are_whole(maker: str) -> None:
    pattern = MAKERS[maker](evergrad)
    weight = numbers(evergrad, *pattern.shape[:-2], pattern.shape[-1], 3)
    leaf, dense = pattern.detach().requires_grad_(), pattern.to_dense().detach().requires_grad_()
    ((leaf @ weight) ** 2).sum().backward()
    ((dense @ weight) ** 2).sum().backward()
    assert evergrad.allclose(leaf.grad, dense.grad, rtol=1e-12)


@pytest.mark.parametrize("maker", ["batched_csr", "batched_bsr", "bsr"])
def test_sparse_times_sparse(maker: str) -> None:
    s = MAKERS[maker](evergrad)
    whole = s.to_dense()
    found = (s @ s.transpose(-2, -1)).to_dense()
    assert evergrad.allclose(found, whole @ whole.transpose(-2, -1), rtol=1e-12)


def test_a_vector_is_no_matrix() -> None:
    with pytest.raises(RuntimeError, match="two dimensions at least"):
        evergrad.ones(3).to_sparse_csr()


def test_a_sum_of_two_patterns_and_a_product_with_dense() -> None:
    a, b = bsr(evergrad), evergrad.eye(4, 6).double().to_sparse_bsr((2, 2))
    assert (a + b).layout is evergrad.sparse_bsr
    assert evergrad.equal((a + b).to_dense(), a.to_dense() + b.to_dense())
    assert evergrad.equal((a - b).to_dense(), a.to_dense() - b.to_dense())
    weight = numbers(evergrad, 4, 6)
    assert (a * weight).layout is evergrad.sparse_bsr
    assert evergrad.equal((a * weight).to_dense(), a.to_dense() * weight)


def test_batches_of_coordinates(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        values = ns.tensor([1.0, 2.0, 3.0], dtype=ns.float64).requires_grad_()
        dense = numbers(ns, 2, 3, 4).requires_grad_()
        s = ns.sparse_coo_tensor([[1, 0, 1], [0, 1, 1], [2, 0, 1]], values, (2, 2, 3))
        (ns.bmm(s, dense) ** 2).sum().backward()
        return values.grad, dense.grad

    agree(program, torch)


@pytest.mark.parametrize("maker", ["batched_csr", "batched_bsr"])
def test_compiled(maker: str) -> None:
    """The values are an input of the program; the pattern is a constant of it."""
    pattern = MAKERS[maker](evergrad).float()
    dense = numbers(evergrad, 2, pattern.shape[-1], 3).float()
    places, shape, layout = (
        (pattern.crow_indices(), pattern.col_indices()),
        pattern.shape,
        pattern.layout,
    )

    def step(values: Any, dense: Any) -> Any:
        values, dense = values.detach().requires_grad_(), dense.detach().requires_grad_()
        made = evergrad.sparse_compressed_tensor(*places, values, shape, layout=layout)
        loss = ((made @ dense) ** 2).sum()
        loss.backward()
        return loss.detach(), values.grad, dense.grad

    compiled = evergrad.compile(step)
    for scale in (1.0, 2.0):
        args = pattern.values() * scale, dense
        for found, expected in zip(compiled(*args), step(*args), strict=True):
            assert evergrad.allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("maker", ALL)
def test_copies_and_files(maker: str) -> None:
    s = MAKERS[maker](evergrad)
    file = io.BytesIO()
    evergrad.save(s, file)
    file.seek(0)
    for found in (pickle.loads(pickle.dumps(s)), copy.deepcopy(s), evergrad.load(file)):
        assert found.layout is s.layout and found.shape == s.shape
        assert evergrad.equal(found.to_dense(), s.to_dense())


def test_files_of_torch(torch: ModuleType) -> None:
    for name, maker in MAKERS.items():
        file = io.BytesIO()
        torch.save(maker(torch), file)
        file.seek(0)
        found = evergrad.load(file)
        assert evergrad.equal(found.values(), maker(evergrad).values()), name


def test_a_product_takes_the_memory_of_its_operands() -> None:
    """No gathered copy: 200,000 elements times 64 columns would be 51 MB."""
    rng = np.random.default_rng(0)
    rows, each = 2_000, 100
    columns = np.sort(rng.permuted(np.tile(np.arange(4_000), (rows, 1)), axis=1)[:, :each], 1)
    values = evergrad.tensor(rng.standard_normal(rows * each).astype(np.float32))
    values.requires_grad_()
    pointers = np.arange(rows + 1) * each
    dense = evergrad.randn(4_000, 64, requires_grad=True)
    matrix = evergrad.sparse_csr_tensor(pointers, columns.reshape(-1), values, (rows, 4_000))
    with memory.track() as tracked:
        (matrix @ dense).sum().backward()
    expected = 3 * dense.nbytes + 4 * rows * 64 * 4 + 12 * columns.nbytes
    assert tracked.peak <= expected, (tracked.peak, expected)
    assert dense.grad is not None and values.grad is not None


def test_wrong_pointers_are_an_index_error() -> None:
    parts = [[0, 2], [0, 1]], [[0, 1], [0, 1]], [[1.0, 2.0]] * 2
    wrong = evergrad.sparse_csr_tensor(*parts, (2, 1, 2), check_invariants=False)
    with pytest.raises(IndexError, match="pointers"):
        wrong @ evergrad.ones(2, 2)
