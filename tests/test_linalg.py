"""Linear algebra against PyTorch: values, gradients of first and second order, and errors.

Results that are only defined up to signs or phases go on to something that does not depend on
them before they are compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad
from evergrad.autograd import gradcheck, gradgradcheck
from linalg_twins import RECTANGULAR, SQUARE, Array, compare, hermitian, matrices, numbers, positive
from twins import agree

# -- systems ------------------------------------------------------------------------------------


@pytest.mark.parametrize("complex", [False, True])
@pytest.mark.parametrize(
    ("left", "right", "options"),
    [
        ((3, 3), (3,), {}),
        ((3, 3), (3, 2), {}),
        ((2, 3, 3), (2, 3), {}),
        ((2, 3, 3), (2, 3, 1), {}),
        ((2, 3, 3), (4, 1, 3, 2), {}),
        ((3, 3), (4, 3, 2), {}),
        ((3, 3), (4, 2, 3), {"left": False}),
        ((0, 3, 3), (0, 3, 2), {}),
        ((0, 0), (0, 2), {}),
    ],
    ids=str,
)
def test_solve(torch: ModuleType, left: Any, right: Any, options: Any, complex: bool) -> None:
    arrays = numbers(*left, complex=complex), numbers(*right, complex=complex, seed=1)
    compare(torch, lambda ns, a, b: ns.linalg.solve(a, b, **options), *arrays)
    compare(torch, lambda ns, a, b: ns.linalg.solve_ex(a, b, **options), *arrays)


@pytest.mark.parametrize("complex", [False, True])
@pytest.mark.parametrize("unitriangular", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("upper", [False, True])
def test_solve_triangular(
    torch: ModuleType, upper: bool, left: bool, unitriangular: bool, complex: bool
) -> None:
    def call(ns: Any, a: Any, b: Any) -> Any:
        return ns.linalg.solve_triangular(a, b, upper=upper, left=left, unitriangular=unitriangular)

    a, b = numbers(2, 3, 3, complex=complex), numbers(3, 3, complex=complex, seed=1)
    compare(torch, call, a, b)
    compare(torch, call, b, a)


@pytest.mark.filterwarnings("ignore:.*triangular_solve is deprecated")
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("upper", [False, True])
def test_triangular_solve(torch: ModuleType, upper: bool, transpose: bool) -> None:
    for complex in (False, True):
        a, b = numbers(2, 3, 3, complex=complex), numbers(2, 3, 1, complex=complex)
        compare(torch, lambda ns, a, b: ns.triangular_solve(b, a, upper, transpose).solution, a, b)


@matrices(SQUARE)
def test_inverses_and_determinants(torch: ModuleType, a: Array) -> None:
    for call in (
        lambda ns, a: ns.linalg.inv(a),
        lambda ns, a: ns.linalg.inv_ex(a),
        lambda ns, a: a.inverse(),
        lambda ns, a: ns.det(a),
        lambda ns, a: ns.linalg.det(a),
        lambda ns, a: ns.slogdet(a),
        lambda ns, a: a.logdet(),
        lambda ns, a: ns.matrix_power(a, -2),
        lambda ns, a: ns.linalg.matrix_power(a, 3),
        lambda ns, a: ns.linalg.matrix_exp(a),
    ):
        compare(torch, call, a)


def test_gradient_of_the_determinant_is_exact_for_singular_matrices() -> None:
    matrix = evergrad.tensor([[1.0, 2.0], [2.0, 4.0]], requires_grad=True)
    evergrad.det(matrix).backward()
    assert matrix.grad is not None
    np.testing.assert_allclose(matrix.grad.numpy(), [[4, -2], [-2, 1]], rtol=1e-5)
    nothing = evergrad.zeros(3, 3, requires_grad=True)
    evergrad.det(nothing).backward()
    assert nothing.grad is not None and not nothing.grad.numpy().any()


@pytest.mark.parametrize("complex", [False, True])
def test_tensor_systems(torch: ModuleType, complex: bool) -> None:
    a, b = numbers(6, 6, complex=complex), numbers(6, complex=complex)
    compare(torch, lambda ns, a: ns.linalg.tensorinv(a), a.reshape(2, 3, 3, 2))
    compare(torch, lambda ns, a: ns.linalg.tensorinv(a, ind=1), a.reshape(6, 3, 2))
    compare(torch, lambda ns, a, b: ns.linalg.tensorsolve(a, b), a.reshape(2, 3, 6),
            b.reshape(2, 3))  # fmt: skip
    compare(torch, lambda ns, a, b: ns.linalg.tensorsolve(a, b, dims=(0,)),
            a.reshape(2, 6, 3), b)  # fmt: skip


# -- factorizations -----------------------------------------------------------------------------


@matrices(SQUARE)
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky(torch: ModuleType, a: Array, upper: bool) -> None:
    def factor(ns: Any, a: Any) -> Any:
        return ns.linalg.cholesky(positive(ns, a), upper=upper)

    compare(torch, factor, a)
    compare(torch, lambda ns, a: ns.linalg.cholesky_ex(positive(ns, a), upper=upper), a)
    compare(torch, lambda ns, a: ns.cholesky_inverse(factor(ns, a), upper=upper), a)
    compare(torch, lambda ns, a: ns.cholesky_solve(a, factor(ns, a), upper=upper), a)


@matrices([*SQUARE, *RECTANGULAR])
def test_qr(torch: ModuleType, a: Array) -> None:
    compare(torch, lambda ns, a: ns.linalg.qr(a), a)
    compare(torch, lambda ns, a: ns.qr(a), a)
    agree(lambda ns: ns.linalg.qr(ns.tensor(a), mode="r"), torch)
    if a.shape[-2] <= a.shape[-1]:
        compare(torch, lambda ns, a: ns.linalg.qr(a, mode="complete"), a)
    else:
        q, r = evergrad.linalg.qr(evergrad.tensor(a), mode="complete")
        assert q.shape == (*a.shape[:-1], a.shape[-2])
        np.testing.assert_allclose((q @ r).numpy(), a, atol=1e-12)


@matrices([*SQUARE, *RECTANGULAR])
def test_lu(torch: ModuleType, a: Array) -> None:
    compare(torch, lambda ns, a: ns.linalg.lu(a), a)
    compare(torch, lambda ns, a: ns.linalg.lu_factor_ex(a), a)
    compare(torch, lambda ns, a: ns.lu_unpack(*ns.linalg.lu_factor(a)), a)


@pytest.mark.parametrize("complex", [False, True])
@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_lu_solve(torch: ModuleType, left: bool, adjoint: bool, complex: bool) -> None:
    def call(ns: Any, a: Any, b: Any) -> Any:
        return ns.linalg.lu_solve(*ns.linalg.lu_factor(a), b, left=left, adjoint=adjoint)

    compare(torch, call, numbers(2, 3, 3, complex=complex), numbers(2, 3, 3, complex=complex))


@pytest.mark.parametrize("complex", [False, True])
def test_householder_product(torch: ModuleType, complex: bool) -> None:
    a = numbers(2, 4, 3, complex=complex)
    for count in (1, 2, 3):
        tau = numbers(2, count, complex=complex)
        compare(torch, lambda ns, a, tau: ns.linalg.householder_product(a, tau), a, tau)
    agree(lambda ns: ns.orgqr(*ns.geqrf(ns.tensor(a))), torch)
    for left in (False, True):
        for transpose in (False, True):
            compare(torch, lambda ns, a, tau, c, o=(left, transpose): ns.ormqr(a, tau, c, *o),
                    a, tau, numbers(2, 4, 4, complex=complex))  # fmt: skip


# -- spectra ------------------------------------------------------------------------------------


def of_eigh(ns: Any, a: Any) -> Any:
    values, vectors = ns.linalg.eigh(a)
    return values, vectors.abs(), (vectors * values.cos().unsqueeze(-2)) @ vectors.mH


def of_eig(ns: Any, a: Any) -> Any:
    values, vectors = ns.linalg.eig(a)
    return values, vectors.abs()


def of_svd(ns: Any, a: Any, full_matrices: bool = True) -> Any:
    u, s, vh = ns.linalg.svd(a, full_matrices)
    count = s.shape[-1]
    u, vh = u[..., :count], vh[..., :count, :]
    return s, u.abs(), vh.abs(), (u * s.cos().unsqueeze(-2)) @ vh


@matrices(SQUARE)
def test_eigenvalues(torch: ModuleType, a: Array) -> None:
    compare(torch, of_eigh, a)
    compare(torch, lambda ns, a: of_eigh(ns, hermitian(a)), a)
    compare(torch, lambda ns, a: ns.linalg.eigvalsh(a, UPLO="U"), a)
    compare(torch, of_eig, a)
    compare(torch, lambda ns, a: ns.linalg.eigvals(a), a)


@matrices([*SQUARE, *RECTANGULAR])
def test_singular_values(torch: ModuleType, a: Array) -> None:
    compare(torch, of_svd, a)
    compare(torch, lambda ns, a: of_svd(ns, a, full_matrices=False), a)
    compare(torch, lambda ns, a: ns.linalg.svdvals(a), a)
    agree(lambda ns: [part.shape for part in ns.svd(ns.tensor(a), some=False)], torch)
    agree(lambda ns: ns.svd(ns.tensor(a), compute_uv=False), torch)


@pytest.mark.parametrize("complex", [False, True])
@pytest.mark.parametrize("shape", [(4, 2), (2, 4)])
def test_spaces_that_complete_a_basis_have_exact_derivatives(shape: Any, complex: bool) -> None:
    def projections(a: Any) -> Any:
        u, s, vh = evergrad.linalg.svd(a)
        q = evergrad.linalg.qr(a, mode="complete").Q
        rest = [u[:, len(s) :], vh.mH[:, len(s) :], q[:, len(s) :]]
        return tuple(x @ x.mH for x in rest)

    a = evergrad.tensor(numbers(*shape, complex=complex)).requires_grad_()
    assert gradcheck(projections, (a,), check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(projections, (a,))


def test_functions_of_equal_values_have_gradients() -> None:
    identity = evergrad.eye(3, requires_grad=True)
    for values in (
        evergrad.linalg.svdvals(identity),
        evergrad.linalg.svd(identity).S,
        evergrad.linalg.eigvalsh(identity),
        evergrad.linalg.eigh(identity).eigenvalues,
        evergrad.linalg.eigvals(identity).real,
    ):
        (found,) = evergrad.autograd.grad(values.sum(), identity)
        np.testing.assert_array_equal(found.numpy(), np.eye(3))


def test_vectors_of_equal_values_have_none() -> None:
    identity = evergrad.eye(3, requires_grad=True)
    weight = evergrad.arange(9.0).reshape(3, 3)
    for vectors in (evergrad.linalg.svd(identity).U, evergrad.linalg.eigh(identity).eigenvectors):
        (found,) = evergrad.autograd.grad((vectors * weight).sum(), identity)
        assert not np.isfinite(found.numpy()).all()


# -- edges --------------------------------------------------------------------------------------


def test_singular_matrices(torch: ModuleType) -> None:
    def singular(ns: Any) -> Any:
        return ns.stack([ns.eye(2), ns.ones(2, 2)])

    for program, text in (
        (lambda ns: ns.linalg.inv(singular(ns)), r"\(Batch element 1\): The diagonal element 2"),
        (lambda ns: ns.linalg.inv(ns.zeros(2, 2)), "inv: The diagonal element 1 is zero"),
        (lambda ns: ns.linalg.solve(singular(ns), ns.ones(2, 2, 1)), "Batch element 1"),
        (lambda ns: ns.linalg.lu_factor(singular(ns)), r"\(Batch element 1\): U\[2,2\] is zero"),
        (lambda ns: ns.linalg.cholesky(-ns.eye(2)), "the leading minor of order 1"),
        (lambda ns: ns.linalg.cholesky(ns.tensor([[2.0, 3], [3, 1]])), "minor of order 2"),
        (lambda ns: ns.linalg.cholesky(ns.full((2, 2), math.nan)), "minor of order 1"),
        (lambda ns: ns.linalg.svd(ns.full((2, 2), math.nan)), "failed to converge"),
    ):
        with pytest.raises(RuntimeError):
            program(torch)
        with pytest.raises(evergrad.linalg.LinAlgError, match=text):
            program(evergrad)
    agree(lambda ns: ns.linalg.inv_ex(singular(ns)).info, torch)
    agree(lambda ns: ns.linalg.solve_ex(singular(ns), ns.ones(2, 2, 1)).info, torch)
    agree(lambda ns: ns.linalg.cholesky_ex(-singular(ns)).info, torch)
    agree(lambda ns: ns.linalg.cond(singular(ns), 1), torch)
    agree(lambda ns: ns.linalg.lu(singular(ns)), torch)
    assert np.isnan(evergrad.linalg.inv_ex(evergrad.ones(2, 2)).inverse.numpy()).all()


@pytest.mark.parametrize(
    "program",
    [
        lambda ns: ns.linalg.inv(ns.ones(3)),
        lambda ns: ns.linalg.inv(ns.ones(2, 3)),
        lambda ns: ns.linalg.inv(ns.ones(2, 2, dtype=ns.int64)),
        lambda ns: ns.linalg.inv(ns.ones(2, 2, dtype=ns.float16)),
        lambda ns: ns.linalg.inv(3),
        lambda ns: ns.linalg.solve(ns.eye(3), ns.ones(4)),
        lambda ns: ns.linalg.solve(ns.eye(3), ns.ones(3), left=False),
        lambda ns: ns.linalg.solve(ns.eye(3), ns.ones(3, dtype=ns.float64)),
        lambda ns: ns.linalg.solve(ns.eye(3), ns.tensor(1.0)),
        lambda ns: ns.linalg.solve_triangular(ns.eye(3), ns.ones(3), upper=True),
        lambda ns: ns.linalg.cholesky(ns.ones(2, 3)),
        lambda ns: ns.cholesky_solve(ns.ones(2, 3), ns.eye(3)),
        lambda ns: ns.linalg.qr(ns.eye(3), mode="economic"),
        lambda ns: ns.linalg.lu(ns.eye(3), pivot=False),
        lambda ns: ns.linalg.lu_solve(ns.eye(3), ns.ones(3), ns.ones(3, 1)),
        lambda ns: ns.linalg.householder_product(ns.ones(2, 3), ns.ones(2)),
        lambda ns: ns.linalg.eigh(ns.eye(2), UPLO="x"),
        lambda ns: ns.linalg.eig(ns.full((2, 2), math.inf)),
        lambda ns: ns.linalg.svd(ns.eye(2), driver="gesvd"),
        lambda ns: ns.linalg.matrix_norm(ns.ones(3, 3), 3),
        lambda ns: ns.linalg.matrix_norm(ns.ones(3, 3), dim=(0, 0)),
        lambda ns: ns.linalg.norm(ns.ones(2, 2, 2), 2),
        lambda ns: ns.linalg.norm(ns.ones(2, 2, 2), 2, dim=(0, 1, 2)),
        lambda ns: ns.linalg.vector_norm(ns.ones(3, dtype=ns.int64)),
        lambda ns: ns.linalg.vector_norm(ns.ones(0), math.inf),
        lambda ns: ns.linalg.cond(ns.ones(2, 3), 1),
        lambda ns: ns.linalg.cond(ns.ones(2, 2), "max"),
        lambda ns: ns.linalg.matrix_power(ns.ones(2, 3), 2),
        lambda ns: ns.linalg.multi_dot([ns.ones(2, 2)]),
        lambda ns: ns.linalg.multi_dot([ns.ones(2, 2), ns.ones(3, 2)]),
        lambda ns: ns.linalg.multi_dot([ns.ones(2, 2), ns.ones(2), ns.ones(2, 2)]),
        lambda ns: ns.linalg.vecdot(ns.ones(3), ns.ones(4)),
        lambda ns: ns.linalg.tensorinv(ns.ones(4, 3, 2), ind=1),
        lambda ns: ns.linalg.lstsq(ns.ones(3, 2), ns.ones(4)),
        lambda ns: ns.linalg.lstsq(ns.ones(3, 2), ns.ones(3, 1), driver="svd"),
        lambda ns: ns.linalg.vander(ns.tensor(3.0)),
        lambda ns: ns.trace(ns.ones(3)),
    ],
)
def test_refusals(torch: ModuleType, program: Callable[[Any], Any]) -> None:
    with pytest.raises((RuntimeError, TypeError)) as theirs:
        program(torch)
    with pytest.raises(TypeError if theirs.type is TypeError else RuntimeError):
        program(evergrad)


def test_results_are_named_and_can_be_written_into_tensors() -> None:
    a = evergrad.tensor(numbers(3, 3))
    found = evergrad.linalg.eigh(a @ a.mT)
    assert type(found).__name__ == "linalg_eigh"
    assert found.eigenvalues is found[0]
    assert repr(found).startswith("evergrad.return_types.linalg_eigh(\neigenvalues=tensor(")
    out = evergrad.zeros(3, 3, dtype=evergrad.float64)
    assert evergrad.linalg.inv(a, out=out) is out
    np.testing.assert_allclose((a @ out).numpy(), np.eye(3), atol=1e-12)
    assert set(evergrad.linalg.__all__) <= set(dir(evergrad.linalg))


@pytest.mark.parametrize("low", ["float32", "complex64"])
def test_single_precision_stays(torch: ModuleType, low: str) -> None:
    a = numbers(3, 3, complex=low == "complex64").astype(low)
    names = (
        "inv",
        "det",
        "slogdet",
        "eigh",
        "eig",
        "svd",
        "qr",
        "lu",
        "pinv",
        "matrix_exp",
        "cond",
    )
    for name in names:

        def program(ns: Any, name: str = name) -> Any:
            found = getattr(ns.linalg, name)(ns.tensor(a))
            parts = found if isinstance(found, tuple) else (found,)
            return [str(part.dtype).partition(".")[2] for part in parts]

        agree(program, torch)
