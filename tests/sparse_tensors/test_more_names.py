"""Names of PyTorch's sparse tensors that change shape or layout in place, sums, and checks."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

import evergrad as eg
from twins import agree, refuse

ELEMENTS = [[1.0, 0.0, 2.0], [0.0, 0.0, 3.0]]


def matrix(ns: Any) -> Any:
    return ns.tensor(ELEMENTS).to_sparse()


def square(ns: Any) -> Any:
    return ns.tensor([[1.0, 0.0], [2.0, 3.0]])


def dense(found: Any) -> Any:
    return found.to_dense(), found._nnz(), tuple(found.shape), found.sparse_dim()


@pytest.mark.parametrize(
    "call",
    [
        lambda ns, x: dense(x.t_()),
        lambda ns, x: dense(x.transpose_(0, 1)),
        lambda ns, x: dense(x.swapaxes_(0, 1)),
        lambda ns, x: dense((x * 2).swapdims_(-1, 0) + 0 * matrix(ns).t()),
        lambda ns, x: dense(x.sparse_resize_((3, 4), 2, 0)),
        lambda ns, x: dense(x.sparse_resize_and_clear_((3, 4), 1, 1)),
        lambda ns, x: dense(ns.eye(2).to_sparse().resize_as_sparse_(x)),
        lambda ns, x: dense(x.sparse_resize_and_clear_((2, 2), 2, 0).sparse_resize_((4,), 1, 0)),
        lambda ns, x: (x.any(), (x * 0).any()),
        lambda ns, x: dense(ns.hspmm(x, ns.arange(6.0).reshape(3, 2))),
        lambda ns, x: (lambda r: r.dense_dim())(ns.hspmm(x, ns.ones(3, 2))),
        lambda ns, x: ns.sspaddmm(
            ns.ones(2, 2).to_sparse(), x, ns.arange(6.0).reshape(3, 2), beta=2, alpha=3
        ).to_dense(),
        lambda ns, x: ns.eye(2).to_sparse().sspaddmm(x, ns.ones(3, 2)).to_dense(),
        lambda ns, x: (lambda r: (r.to_dense(), r._nnz()))(x.to_sparse_csr().zero_()),
        lambda ns, x: [
            str((a @ b).layout)[-3:]
            for a in (square(ns).to_sparse_csr(), square(ns).to_sparse_csc())
            for b in (square(ns).to_sparse_csr(), square(ns).to_sparse_csc())
        ],
        lambda ns, x: [
            str(ns.sparse.mm(a, a).layout)[-3:]
            for a in (square(ns).to_sparse_csr(), square(ns).to_sparse_csc())
        ],
        lambda ns, x: x.to_sparse_csr().fill_(2.0).to_dense(),
        lambda ns, x: x.to_sparse_bsr((1, 1)).fill_(2.0).to_dense(),
        lambda ns, x: x.to_sparse_csc().copy_((x * 2).to_sparse_csc()).to_dense(),
    ],
)
def test_calls_agree(call: Any, torch: ModuleType) -> None:
    agree(lambda ns: call(ns, matrix(ns)), torch)


@pytest.mark.parametrize(
    "misuse",
    [
        lambda ns: matrix(ns).sparse_resize_((1, 1), 2, 0),
        lambda ns: matrix(ns).sparse_resize_((3, 4, 2), 2, 1),
        lambda ns: matrix(ns).sparse_resize_((3, 4, 2), 3, 0),
        lambda ns: matrix(ns).sparse_resize_((3, 4), 1, 0),
        lambda ns: ns.ones(2, 2).sparse_resize_((3, 3), 2, 0),
        lambda ns: ns.ones(2, 2).sparse_resize_and_clear_((3, 3), 2, 0),
        lambda ns: matrix(ns).requires_grad_().t_(),
        lambda ns: matrix(ns).to_sparse_csr().copy_(matrix(ns).to_sparse_csc()),
        lambda ns: matrix(ns).to_sparse_csr().copy_(ns.eye(2).to_sparse_csr()),
        lambda ns: ns.sspaddmm(ns.ones(2, 2), matrix(ns), ns.ones(3, 2)),
        lambda ns: ns.sparse.spsolve(ns.eye(2).to_sparse_csr(), ns.ones(2)),
    ],
)
def test_misuse_is_refused(misuse: Any, torch: ModuleType) -> None:
    refuse(misuse, torch)


def test_in_place_forms_are_part_of_the_graph() -> None:
    x = eg.tensor(ELEMENTS).to_sparse().requires_grad_()
    y = (x * 2).t_()
    (y.to_dense() * eg.arange(6.0).reshape(3, 2)).sum().backward()
    assert x.grad is not None
    assert x.grad.to_dense().tolist() == [[0.0, 0.0, 8.0], [0.0, 0.0, 10.0]]


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr", "bsc"])
def test_gradcheck_of_sparse_functions(layout: str, masked: bool, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        check = ns.sparse.as_sparse_gradcheck(ns.autograd.gradcheck)
        x = ns.tensor([[1.0, 0.0], [2.0, 3.0]], dtype=ns.float64)
        block = ((1, 1),) if layout[0] == "b" else ()
        x = getattr(x, f"to_sparse_{layout}")(*block).requires_grad_()
        return check(lambda x: x.to_dense() * 2, (x,), masked=masked), check(
            lambda x: x * 3, x, masked=masked
        )

    agree(program, torch)


def test_a_wrong_gradient_is_found() -> None:
    class Wrong(eg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: eg.Tensor) -> eg.Tensor:
            return x * x

        @staticmethod
        def backward(ctx: Any, g: eg.Tensor) -> eg.Tensor:
            return g

    x = eg.tensor([[2.0, 0.0]], dtype=eg.float64).to_sparse().requires_grad_()
    with pytest.raises(RuntimeError, match="does not agree"):
        eg.sparse.as_sparse_gradcheck(eg.autograd.gradcheck)(
            lambda x: Wrong.apply(x.to_dense()), (x,), masked=True
        )


def test_dense_dimensions_grow_by_zeros() -> None:
    """PyTorch leaves what is in memory there."""
    x = eg.ones(2, 2).to_sparse(1).sparse_resize_((3, 4), 1, 1)
    assert x.to_dense().tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]]


def test_what_needs_cuda_says_so() -> None:
    with pytest.raises(NotImplementedError, match="to_sparse_csr"):
        eg.sparse.to_sparse_semi_structured(eg.ones(4, 4))
