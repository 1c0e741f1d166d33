"""Factorizations by LAPACK: layouts, stacks, refusals and threads, against PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad
from evergrad.core import blas, openblas
from evergrad.ops.rows.linalg import kernels, lapack, triangular
from linalg_twins import Array, compare, numbers
from twins import agree

DTYPES = ("float32", "float64", "complex64", "complex128")
ORDERS = (5, 40)  # computed by NumPy where it has the function, and by LAPACK
TOLERANCE = {"float32": 2e-3, "complex64": 2e-3, "float64": 1e-8, "complex128": 1e-8}


def positive(ns: Any, a: Any) -> Any:
    return a @ a.mH / a.shape[-1] + ns.eye(a.shape[-1], dtype=a.dtype)


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "lu_factor": lambda ns, a: ns.linalg.lu_factor_ex(a),
    "lu": lambda ns, a: ns.linalg.lu(a),
    "solve": lambda ns, a: ns.linalg.solve(a, a.mT),
    "solve a vector": lambda ns, a: ns.linalg.solve(a, a[..., 0]),
    "solve from the right": lambda ns, a: ns.linalg.solve(a, a.mT, left=False),
    "lu_solve": lambda ns, a: ns.linalg.lu_solve(*ns.linalg.lu_factor(a), a.mT, adjoint=True),
    "triangular": lambda ns, a: ns.linalg.solve_triangular(positive(ns, a), a.mT, upper=True),
    "triangular, unit": lambda ns, a: ns.linalg.solve_triangular(
        positive(ns, a) / 9, a, upper=False, left=False, unitriangular=True),
    "inv": lambda ns, a: ns.linalg.inv_ex(a),
    "det": lambda ns, a: ns.linalg.det(a / a.shape[-1] ** 0.5),
    "slogdet": lambda ns, a: ns.linalg.slogdet(a),
    "cholesky": lambda ns, a: ns.linalg.cholesky_ex(positive(ns, a)),
    "cholesky, upper": lambda ns, a: ns.linalg.cholesky_ex(positive(ns, a), upper=True),
    "cholesky_solve": lambda ns, a: ns.cholesky_solve(a, ns.linalg.cholesky(positive(ns, a))),
    "cholesky_inverse": lambda ns, a: ns.cholesky_inverse(ns.linalg.cholesky(positive(ns, a))),
    "ldl": lambda ns, a: ns.linalg.ldl_factor_ex(a + a.mT),
    "ldl, hermitian": lambda ns, a: ns.linalg.ldl_factor_ex(a + a.mH, hermitian=True),
    "ldl_solve": lambda ns, a: ns.linalg.ldl_solve(*ns.linalg.ldl_factor(a + a.mT), a),
    "qr": lambda ns, a: ns.linalg.qr(a),
    "geqrf": lambda ns, a: ns.geqrf(a),
    "householder_product": lambda ns, a: ns.linalg.householder_product(*ns.geqrf(a)),
    "ormqr": lambda ns, a: ns.ormqr(*ns.geqrf(a), a, True, True),
    "ormqr from the right": lambda ns, a: ns.ormqr(*ns.geqrf(a), a.mT, False, False),
    "lstsq": lambda ns, a: ns.linalg.lstsq(a, a)[0],
    "eigvalsh": lambda ns, a: ns.linalg.eigvalsh(a + a.mH),
    "svdvals": lambda ns, a: ns.linalg.svdvals(a),
    "pinv": lambda ns, a: ns.linalg.pinv(a),
}  # fmt: skip


def in_layouts(ns: Any, a: Array) -> Iterator[tuple[str, Any]]:
    """The same matrices in memory of different order."""
    yield "contiguous", ns.tensor(a)
    yield "transposed", ns.tensor(np.ascontiguousarray(np.swapaxes(a, -2, -1))).mT
    padded = np.zeros((*a.shape[:-2], 2 * a.shape[-2], a.shape[-1] + 3), a.dtype)
    padded[..., ::2, 1:-2] = a
    yield "strided", ns.tensor(padded)[..., ::2, 1:-2]
    yield "expanded", ns.tensor(a).expand(2, *a.shape)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_layouts_and_stacks(torch: ModuleType, dtype: str, order: int, name: str) -> None:
    for shape in ((order, order), (3, order, order)):
        a = numbers(*shape, complex=dtype.startswith("complex")).astype(dtype)
        pairs = zip(in_layouts(evergrad, a), in_layouts(torch, a), strict=True)
        for (_, ours), (_, theirs) in pairs:
            agree(
                lambda ns, x=(ours, theirs): CALLS[name](ns, x[ns is torch]),
                torch,
                TOLERANCE[dtype],
            )


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("shape", [(0, 0), (0, 3, 3), (2, 0, 0), (0, 20, 20)])
def test_nothing(torch: ModuleType, shape: tuple[int, ...], name: str) -> None:
    if name == "solve a vector" and 0 in shape[-2:]:
        return  # there is no column to take
    agree(lambda ns: CALLS[name](ns, ns.zeros(shape, dtype=ns.float64)), torch)


def is_constant(name: str) -> bool:
    """Whether PyTorch, too, has no derivative of it."""
    return name.startswith(("ldl", "geqrf", "householder", "ormqr"))


@pytest.mark.parametrize("complex", [False, True])
@pytest.mark.parametrize("name", [n for n in CALLS if not is_constant(n)])
def test_derivatives_of_larger_matrices(torch: ModuleType, name: str, complex: bool) -> None:
    """The order is one for which LAPACK is called, and NumPy is not."""
    a = numbers(33, 33, complex=complex)
    compare(torch, lambda ns, a: CALLS[name](ns, a), a)


@pytest.mark.parametrize("complex", [False, True])
def test_derivatives_of_reflections(torch: ModuleType, complex: bool) -> None:
    a, tau, c = (numbers(*s, complex=complex) / 4 for s in ((2, 20, 12), (2, 12), (20, 20)))
    compare(torch, lambda ns, a, tau: ns.linalg.householder_product(a, tau), a, tau[:, :9])
    for left in (False, True):
        for transpose in (False, True):

            def call(ns: Any, a: Any, t: Any, c: Any, o: Any = (left, transpose)) -> Any:
                return ns.ormqr(a, t, c, *o)

            compare(torch, call, a[0], tau[0], c)


@pytest.mark.parametrize("missing", [1, 2])
@pytest.mark.parametrize("size", [1e-3, 1e-6, 1e-9, 0.0])
@pytest.mark.parametrize("order", [6, 60])
def test_gradient_of_the_determinant_near_singular_matrices(
    order: int, size: float, missing: int
) -> None:
    """In float32, against the cofactors of the same matrix by singular values in float64."""
    generator = np.random.default_rng([order, missing])
    u, v = (np.linalg.qr(generator.standard_normal((order, order)))[0] for _ in range(2))
    s = np.linspace(0.8, 1.2, order)
    s[-missing:] = size
    a = ((u * s) @ v).astype(np.float32)
    u, s, v = np.linalg.svd(a.astype(np.float64))
    others = [np.prod(np.delete(s, i)) for i in range(order)]
    expected = (u * others) @ v * np.linalg.det(u) * np.linalg.det(v)
    x = evergrad.tensor(a, requires_grad=True)
    evergrad.linalg.det(x).backward()
    assert x.grad is not None
    largest = np.prod(np.linspace(0.8, 1.2, order)[:-missing])
    rounding = 4 * order * np.finfo(np.float32).eps  # of the matrix, as a factorization rounds it
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=0, atol=rounding * largest)


# -- refusals -----------------------------------------------------------------------------------


def singular(ns: Any, order: int, dtype: str) -> Any:
    a = numbers(3, order, order, complex=dtype.startswith("complex")).astype(dtype)
    a[1, :, 3] = 0
    a[2, 2] = 0
    return ns.tensor(a)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_singular_matrices(torch: ModuleType, order: int, dtype: str) -> None:
    for program in (
        lambda ns: ns.linalg.lu_factor_ex(singular(ns, order, dtype)).info,
        lambda ns: ns.linalg.inv_ex(singular(ns, order, dtype)).info,
        lambda ns: ns.linalg.solve_ex(singular(ns, order, dtype), singular(ns, order, dtype)).info,
    ):
        agree(program, torch)
    for program in (
        lambda ns: ns.linalg.lu_factor(singular(ns, order, dtype)),
        lambda ns: ns.linalg.inv(singular(ns, order, dtype)),
        lambda ns: ns.linalg.solve(singular(ns, order, dtype), singular(ns, order, dtype)),
    ):
        for ns, error in (
            (torch, RuntimeError),
            (evergrad, evergrad.linalg.LinAlgError),
        ):
            with pytest.raises(error, match=r"\(Batch element 1\)"):
                program(ns)
    found = evergrad.linalg.inv_ex(singular(evergrad, order, dtype)).inverse.numpy()
    assert np.isfinite(found[0]).all() and np.isnan(found[1:]).all()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("upper", [False, True])
def test_matrices_that_are_not_positive_definite(
    torch: ModuleType, order: int, dtype: str, upper: bool
) -> None:
    def indefinite(ns: Any) -> Any:
        a = np.stack([np.eye(order)] * 3).astype(dtype)
        a[1, 3, 3] = -1
        a[2, 0, 0] = 0
        return ns.tensor(a)

    agree(lambda ns: ns.linalg.cholesky_ex(indefinite(ns), upper=upper).info, torch)
    with pytest.raises(evergrad.linalg.LinAlgError, match=r"\(Batch element 1\).*minor of order 4"):
        evergrad.linalg.cholesky(indefinite(evergrad), upper=upper)
    factor = evergrad.linalg.cholesky_ex(indefinite(evergrad), upper=upper).L.numpy()
    np.testing.assert_array_equal(factor[0], np.eye(order))
    known = np.s_[:3, :4] if upper else np.s_[:4, :3]  # of the leading minor, and the next row
    np.testing.assert_array_equal(factor[1][known], np.eye(order)[known])
    assert np.isnan(factor[1]).sum() == order * order - 12 and np.isnan(factor[2]).all()


@pytest.mark.parametrize("order", [5, 20, 150])
@pytest.mark.parametrize("upper", [False, True])
def test_the_factor_of_the_leading_minor_is_kept(
    torch: ModuleType, order: int, upper: bool
) -> None:
    """Trust-region methods read it: their iteration does not end on NaN."""
    a = np.random.default_rng(order).normal(size=(order, order))
    a = a @ a.T + 0.1 * np.eye(order)
    a[order // 2, order // 2] = -1.0
    ours, info = evergrad.linalg.cholesky_ex(evergrad.tensor(a), upper=upper)
    theirs, expected = torch.linalg.cholesky_ex(torch.tensor(a), upper=upper)
    assert info.item() == expected.item() == order // 2 + 1
    at = info.item() - 1
    known = np.s_[:at, : at + 1] if upper else np.s_[: at + 1, :at]
    np.testing.assert_allclose(ours.numpy()[known], theirs.numpy()[known], rtol=1e-7, atol=1e-9)
    assert np.isnan(ours.numpy()[at:, at:]).all()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_nan(order: int, dtype: str) -> None:
    undefined = evergrad.full((order, order), math.nan, dtype=getattr(evergrad, dtype))
    for name in ("inv", "det", "qr"):
        found = getattr(evergrad.linalg, name)(undefined)
        first = found[0] if name == "qr" else found
        assert np.isnan(first.numpy()).all(), name
    assert np.isnan(evergrad.linalg.lu_factor(undefined).LU.numpy()).any()
    for name in ("cholesky", "eigh", "eigvalsh", "svd", "svdvals", "lstsq"):
        more = (undefined,) if name == "lstsq" else ()
        with pytest.raises(evergrad.linalg.LinAlgError):
            getattr(evergrad.linalg, name)(undefined, *more)
    with pytest.raises(RuntimeError, match="infs or NaNs"):
        evergrad.linalg.eig(undefined)


def test_inverse_of_a_factor_with_a_zero(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        return ns.cholesky_inverse(ns.tensor([[1.0, 0.0], [2.0, 0.0]]))

    for ns, error in ((torch, RuntimeError), (evergrad, evergrad.linalg.LinAlgError)):
        with pytest.raises(error, match="cholesky_inverse: The diagonal element 2 is zero"):
            program(ns)


def test_zeros_on_a_triangle_divide(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        a = ns.eye(20)
        a[4, 4] = 0
        return ns.linalg.solve_triangular(a, ns.ones(20, 1), upper=True)

    agree(program, torch)


# -- least squares ------------------------------------------------------------------------------


@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize("shape", [(20, 7), (7, 20), (2, 30, 30), (4, 2)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_drivers(torch: ModuleType, dtype: str, shape: tuple[int, ...], driver: str) -> None:
    complex = dtype.startswith("complex")
    a = numbers(*shape, complex=complex).astype(dtype)
    b = numbers(*shape[:-1], 3, complex=complex, seed=1).astype(dtype)
    agree(
        lambda ns: ns.linalg.lstsq(ns.tensor(a), ns.tensor(b), driver=driver),
        torch,
        TOLERANCE[dtype],
    )


@pytest.mark.parametrize("driver", ["gelsy", "gelsd", "gelss"])
def test_lower_rank(torch: ModuleType, driver: str) -> None:
    a = numbers(20, 3) @ numbers(3, 9)
    agree(
        lambda ns: ns.linalg.lstsq(ns.tensor(a), ns.tensor(a[:, :2]), rcond=1e-6, driver=driver),
        torch,
        1e-6,
    )


def test_gels_needs_full_rank(torch: ModuleType) -> None:
    for ns, error in ((torch, RuntimeError), (evergrad, evergrad.linalg.LinAlgError)):
        with pytest.raises(error, match="does not have full rank"):
            ns.linalg.lstsq(ns.tensor([[1.0, 0.0]] * 3), ns.ones(3, 1), driver="gels")


# -- many small matrices ------------------------------------------------------------------------


@pytest.mark.parametrize("complex", [False, True])
@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3), (16, 16), (1, 1)])
def test_many_small_matrices_are_factored_as_each_is(shape: Any, complex: bool) -> None:
    a = numbers(200, *shape, complex=complex)
    a[7, :, 0] = 0
    together = kernels.lu_factor(a)
    for i in (0, 7, 199):
        for part, one in zip(together, kernels.lu_factor(a[i]), strict=True):
            np.testing.assert_allclose(part[i], one, atol=1e-12)


@pytest.mark.parametrize("complex", [False, True])
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("adjoint", [False, True])
def test_many_small_systems_are_solved_as_each_is(
    upper: bool, unit: bool, adjoint: bool, complex: bool
) -> None:
    a, b = numbers(200, 4, 4, complex=complex), numbers(200, 4, 2, complex=complex)
    options = {"upper": upper, "unit": unit, "adjoint": adjoint}
    together = triangular.substitute(a, b, **options)
    for i in (0, 199):
        np.testing.assert_allclose(together[i], triangular.substitute(a[i], b[i], **options))
    shared = triangular.substitute(a[0], b, **options)
    np.testing.assert_allclose(shared[9], triangular.substitute(a[0], b[9], **options))


def test_many_small_inverses_of_factors(torch: ModuleType) -> None:
    lower = np.tril(numbers(100, 4, 4))
    agree(lambda ns: ns.cholesky_inverse(ns.tensor(lower)), torch)
    lower[3, 1, 1] = 0
    with pytest.raises(
        evergrad.linalg.LinAlgError, match=r"\(Batch element 3\).*element 2 is zero"
    ):
        evergrad.cholesky_inverse(evergrad.tensor(lower))


def test_vmap_over_one_side_of_a_system() -> None:
    a, b = evergrad.tensor(numbers(40, 40)), evergrad.tensor(numbers(5, 40, 2))
    found = evergrad.func.vmap(lambda b: evergrad.linalg.solve_ex(a, b).result)(b)
    np.testing.assert_allclose((a @ found).numpy(), b.numpy(), atol=1e-9)
    stack = evergrad.tensor(numbers(5, 40, 40))
    x, info = evergrad.func.vmap(evergrad.linalg.solve_ex, in_dims=(0, None))(stack, b[0])
    assert info.shape == (5,)
    np.testing.assert_allclose((stack @ x).numpy(), np.stack([b[0].numpy()] * 5), atol=1e-9)


# -- threads ------------------------------------------------------------------------------------


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Everything is worth two threads; gives the numbers of threads that are set."""
    before = evergrad.get_num_threads()
    evergrad.set_num_threads(2)
    found: list[int] = []
    setter = openblas._set_threads()

    def record() -> Callable[[int], None]:
        return lambda count: (found.append(count), setter(count))[0]

    monkeypatch.setattr(openblas, "_set_threads", record)
    monkeypatch.setattr(blas, "PARALLEL_MIN_WORK", 1)
    monkeypatch.setattr(kernels, "_WORTH_SPLITTING", 4)
    yield found
    evergrad.set_num_threads(before)


@pytest.mark.parametrize("complex", [False, True])
@pytest.mark.parametrize("shape", [(20, 20), (2, 21, 21), (30, 20), (20, 33), (5, 50)])
def test_factoring_in_halves(
    torch: ModuleType, two_threads: list[int], shape: Any, complex: bool
) -> None:
    a = numbers(*shape, complex=complex)
    agree(lambda ns: ns.linalg.lu_factor_ex(ns.tensor(a)), torch, 1e-9)
    a[..., :, 2] = 0
    agree(lambda ns: ns.linalg.lu_factor_ex(ns.tensor(a)).info, torch)
    if min(shape[-2:]) > 15:  # a zero in the second half
        a[..., :, 2] = numbers(*shape[:-1], complex=complex)
        a[..., :, 15] = 0
        agree(lambda ns: ns.linalg.lu_factor_ex(ns.tensor(a)).info, torch)
    assert set(two_threads) == {1, 2}


def test_threads_follow_the_setting_and_the_size(two_threads: list[int]) -> None:
    a = evergrad.tensor(numbers(40, 40))
    evergrad.linalg.qr(a)
    assert two_threads and two_threads[0::2] == [2] * (len(two_threads) // 2)
    assert two_threads[1::2] == [1] * (len(two_threads) // 2)
    two_threads.clear()
    evergrad.set_num_threads(1)
    evergrad.linalg.qr(a)
    assert not two_threads


def test_one_thread_again_after_a_failure(two_threads: list[int]) -> None:
    with pytest.raises(ValueError, match="stop"), openblas.threads_for(10):
        raise ValueError("stop")
    assert two_threads == [2, 1]


def test_small_calls_set_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Any:
        raise AssertionError("threads were set")

    monkeypatch.setattr(openblas, "_set_threads", fail)
    evergrad.linalg.qr(evergrad.tensor(numbers(40, 40)))


# -- calls --------------------------------------------------------------------------------------


@pytest.mark.parametrize("char", "fdFD")
def test_every_routine_of_the_table_is_in_the_library(char: str) -> None:
    _, table = lapack._TABLES[char]
    for name in table:
        routine, names = lapack._routine(name, char)
        assert len(routine.argtypes) == len(names)


def test_scratch_is_what_lapack_asks_for() -> None:
    sizes = (("jobz", b"V"), ("uplo", b"L"), ("n", 100), ("lda", 100))
    found = lapack._scratch_sizes("syevd", np.dtype(np.float32), sizes)
    assert found["work"] >= 1 + 6 * 100 + 2 * 100**2 and found["iwork"] >= 3 + 5 * 100


# -- what user code may hand to LAPACK ----------------------------------------------------------

_NO_ROWS = [[1, 2, 3, 9], [0, 1, 2, 3], [1, 2, 3, -4], [-1, 2, 3, 4], [-2, -2, -3, 4],
            [2**31 - 1, 1, 1, 1], [-(2**31), -(2**31), 1, 1]]  # fmt: skip


@pytest.mark.parametrize("pivots", _NO_ROWS)
def test_pivots_that_are_no_rows(pivots: list[int]) -> None:
    """LAPACK would exchange rows outside of the matrix."""
    a, given = evergrad.eye(4), evergrad.tensor(pivots, dtype=evergrad.int32)
    with pytest.raises(RuntimeError, match="between 1 and 4"):
        evergrad.lu_unpack(a, given)
    with pytest.raises(RuntimeError, match="between 1 and 4"):
        evergrad.linalg.lu_solve(a, given, a)
    with pytest.raises(RuntimeError, match="between 1 and 4"):
        evergrad.linalg.ldl_solve(a, given, a)


@pytest.mark.parametrize("count", [0, 3, 5])
def test_another_number_of_pivots(count: int, torch: ModuleType) -> None:
    for ns in (evergrad, torch):
        with pytest.raises(RuntimeError, match="Number of pivots per batch"):
            ns.linalg.lu_solve(ns.eye(4), ns.ones(count, dtype=ns.int32), ns.eye(4))


def test_blocks_of_two_rows_are_pivots(torch: ModuleType) -> None:
    """A zero diagonal needs blocks; their pivots are negative."""
    a = np.array([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 2], [0, 0, 2, 0]], "float64")
    factors, pivots = evergrad.linalg.ldl_factor(evergrad.tensor(a))
    assert (pivots < 0).all()
    found = evergrad.linalg.ldl_solve(factors, pivots, evergrad.eye(4, dtype=evergrad.float64))
    np.testing.assert_array_equal(found.numpy(), np.linalg.inv(a))
