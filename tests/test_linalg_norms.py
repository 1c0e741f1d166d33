"""Norms, ranks, least squares and products against PyTorch, with gradients of both orders."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import pytest

import evergrad
from evergrad.autograd import gradcheck
from linalg_twins import RECTANGULAR, Array, compare, matrices, numbers
from twins import agree, refuse


@matrices([(3, 3), *RECTANGULAR])
def test_pseudo_inverse_and_rank(torch: ModuleType, a: Array) -> None:
    compare(torch, lambda ns, a: ns.linalg.pinv(a), a)
    compare(torch, lambda ns, a: ns.pinverse(a, 0.1), a)
    compare(torch, lambda ns, a: ns.linalg.pinv(a, atol=0.5, rtol=0.1), a)
    compare(torch, lambda ns, a: ns.linalg.pinv(a @ a.mH, hermitian=True, rtol=1e-3), a)
    for options in ({}, {"tol": 1.0}, {"atol": 1.5}, {"atol": 0.1, "rtol": 0.5}):
        compare(torch, lambda ns, a, o=options: ns.linalg.matrix_rank(a, **o), a)
    compare(torch, lambda ns, a: ns.linalg.matrix_rank(a @ a.mH, hermitian=True), a)


@pytest.mark.parametrize("complex", [False, True])
@pytest.mark.parametrize("driver", [None, "gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize(
    ("left", "right"),
    [((4, 2), (4, 3)), ((4, 2), (4,)), ((2, 4, 2), (2, 4)), ((2, 4), (2, 3)), ((3, 3), (3, 1))],
    ids=str,
)
def test_lstsq(torch: ModuleType, left: Any, right: Any, driver: Any, complex: bool) -> None:
    a, b = numbers(*left, complex=complex), numbers(*right, complex=complex, seed=1)
    compare(torch, lambda ns, a, b: ns.linalg.lstsq(a, b, driver=driver).solution, a, b)
    agree(lambda ns: ns.linalg.lstsq(ns.tensor(a), ns.tensor(b), driver=driver), torch)
    if driver == "gelsd" and left == (4, 2):
        compare(torch, lambda ns, a, b: ns.linalg.lstsq(a, b, driver=driver).residuals, a, b)


ORDERS = ["fro", "nuc", math.inf, -math.inf, 1, -1, 2, -2]


@pytest.mark.parametrize("complex", [False, True])
@pytest.mark.parametrize("order", ORDERS)
def test_matrix_norms(torch: ModuleType, order: Any, complex: bool) -> None:
    a = numbers(2, 3, 3, complex=complex)
    for dim in ((-2, -1), (1, 0), (2, 0)):
        for keepdim in (False, True):
            compare(torch, lambda ns, a, d=dim, k=keepdim: ns.linalg.matrix_norm(a, order, d, k), a)
    compare(torch, lambda ns, a: ns.linalg.norm(a, order, dim=(0, 2)), a)
    compare(torch, lambda ns, a: ns.linalg.norm(a[0], order), a)
    if order == "fro":
        compare(torch, lambda ns, a: ns.frobenius_norm(a, (0, 1), keepdim=True), a)
    if order == "nuc":
        compare(torch, lambda ns, a: ns.nuclear_norm(a, (0, 1)), a)
    # PyTorch's gradient of the others fails: it overwrites the inverse it has saved.
    differentiable = order in (2, -2, "nuc")
    run = compare if differentiable else lambda torch, call, a: agree(
        lambda ns: call(ns, ns.tensor(a)), torch)  # fmt: skip
    run(torch, lambda ns, a: ns.linalg.cond(a, order), a)


def test_gradient_of_the_condition_number() -> None:
    a = evergrad.tensor(numbers(3, 3)).requires_grad_()
    for order in ORDERS:
        assert gradcheck(lambda a, p=order: evergrad.linalg.cond(a, p), (a,))


@pytest.mark.parametrize("complex", [False, True])
@pytest.mark.parametrize("order", [0, 0.5, 1, 2, 3, -1, math.inf, -math.inf])
def test_vector_norms(torch: ModuleType, order: Any, complex: bool) -> None:
    a = numbers(2, 3, 2, complex=complex)
    for dim in (None, 1, (0, -1), (2,)):
        for keepdim in (False, True):
            compare(torch, lambda ns, a, d=dim, k=keepdim: ns.linalg.vector_norm(a, order, d, k), a)
    compare(torch, lambda ns, a: ns.linalg.norm(a, order, dim=1), a)
    a[0, 1] = math.nan
    compare(torch, lambda ns, a: ns.linalg.vector_norm(a, order, 2), a)


@pytest.mark.parametrize("complex", [False, True])
def test_products_and_patterns(torch: ModuleType, complex: bool) -> None:
    def n(*shape: int) -> Array:
        return numbers(*shape, complex=complex)

    def chain(ns: Any, *factors: Any) -> Any:
        return ns.linalg.multi_dot(factors)

    for shapes in (
        ((2, 3), (3, 4), (4, 2)),
        ((3,), (3, 4), (4,)),
        ((3,), (3,)),
        ((3,), (3, 4), (4, 2)),
    ):
        compare(torch, chain, *(n(*shape) for shape in shapes))
    compare(torch, lambda ns, a, b: ns.linalg.cross(a, b), n(2, 3), n(1, 3))
    compare(torch, lambda ns, a, b: ns.linalg.cross(a, b, dim=0), n(3, 2), n(3, 2))
    compare(torch, lambda ns, x, y: ns.linalg.vecdot(x, y), n(2, 3), n(3))
    compare(torch, lambda ns, x, y: ns.linalg.vecdot(x, y, dim=0), n(2, 3), n(2, 3))
    compare(torch, lambda ns, a: ns.linalg.diagonal(a, offset=1), n(2, 3, 4))
    compare(torch, lambda ns, a: ns.trace(a), n(3, 4))
    compare(torch, lambda ns, x: ns.linalg.vander(x, N=4), n(2, 3))
    compare(torch, lambda ns, a, b: ns.linalg.matmul(a, b), n(2, 3), n(3, 2))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("shape", [(2, 0), (0, 2), (3, 0, 0)])
def test_norms_of_nothing(torch: ModuleType, order: Any, shape: Any) -> None:
    def program(ns: Any) -> Any:
        return ns.linalg.matrix_norm(ns.zeros(shape), order)

    try:
        program(torch)
    except IndexError:
        refuse(program, torch)
    else:
        agree(program, torch)
