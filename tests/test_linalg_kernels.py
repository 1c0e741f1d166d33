"""The matrix algorithms NumPy lacks, against SciPy and by what defines them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

from evergrad.ops.rows.linalg import exponential, kernels, triangular
from evergrad.ops.rows.linalg.stacks import cut_triangle, to_columns, to_rows
from linalg_twins import numbers


@pytest.mark.parametrize("shape", [(40, 40), (70, 50), (20, 45), (3, 17, 17)])
def test_lu_of_larger_matrices(shape: tuple[int, ...]) -> None:
    a = np.random.default_rng(0).standard_normal(shape)
    packed, swaps = kernels.lu_factor(a)[:2]
    rows, columns = shape[-2:]
    count = min(rows, columns)
    lower = np.tril(packed[..., :count], -1) + np.eye(rows, count)
    order = kernels.permutation_of(swaps, rows)
    exchanged = np.take_along_axis(a, order[..., None], axis=-2)
    np.testing.assert_allclose(lower @ np.triu(packed[..., :count, :]), exchanged, atol=1e-12)
    assert np.abs(lower).max() <= 1


@pytest.mark.parametrize("upper", [False, True])
def test_substitution_in_larger_matrices(upper: bool) -> None:
    generator = np.random.default_rng(0)
    a = generator.standard_normal((2, 90, 90)) / 10 + 3 * np.eye(90)
    b = generator.standard_normal((90, 4))
    x = triangular.substitute(a, b, upper=upper, unit=False)
    np.testing.assert_allclose(
        (np.triu(a) if upper else np.tril(a)) @ x, np.stack([b, b]), atol=1e-12
    )


@pytest.mark.parametrize("kind", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("upper", "unit", "adjoint"), list(np.ndindex(2, 2, 2)))
def test_substitution_in_a_vector(
    upper: bool, unit: bool, adjoint: bool, transposed: bool, kind: str
) -> None:
    """One column is solved by another routine than several are."""
    a = (numbers(2, 50, 50, complex=kind[0] == "c") / 50 + 2 * np.eye(50)).astype(kind)
    b = numbers(50, 1, complex=kind[0] == "c").astype(kind)
    given = np.ascontiguousarray(np.swapaxes(a, 1, 2)).swapaxes(1, 2) if transposed else a
    read = np.triu(a, int(unit)) if upper else np.tril(a, -int(unit))
    read = read + np.eye(50) if unit else read
    x = triangular.substitute(given, b, upper=bool(upper), unit=bool(unit), adjoint=bool(adjoint))
    read = np.conj(np.swapaxes(read, 1, 2)) if adjoint else read
    tolerance = 1e-4 if kind in ("float32", "complex64") else 1e-12
    np.testing.assert_allclose(read @ x, np.stack([b, b]), atol=tolerance)


@pytest.mark.parametrize("order", [33, 64, 101])
@pytest.mark.parametrize("kind", ["float32", "complex128"])
def test_cholesky_reads_one_triangle(order: int, kind: str) -> None:
    a = numbers(2, order, order, complex=kind[0] == "c")
    a = (a @ np.conj(np.swapaxes(a, 1, 2)) + order * np.eye(order)).astype(kind)
    lower = np.linalg.cholesky(a)
    at = np.triu_indices(order, 1)
    for upper in (False, True):
        given = np.conj(np.swapaxes(a, 1, 2)).copy() if upper else a.copy()
        for one in given:
            (one.T if upper else one)[at] = np.nan
        factor, info = kernels.cholesky(given, upper=upper)
        assert not info.any() and factor.flags.c_contiguous
        found = np.conj(np.swapaxes(factor, 1, 2)) if upper else factor
        np.testing.assert_allclose(found, lower, rtol=1e-3 if kind == "float32" else 1e-10,
                                   atol=1e-4 if kind == "float32" else 1e-12)  # fmt: skip
    inverse, info = kernels.cholesky_inverse(lower)
    assert not info.any()
    np.testing.assert_allclose(inverse @ a, np.stack([np.eye(order)] * 2), atol=1e-4)


@pytest.mark.parametrize(
    "shape", [(130, 100), (100, 130), (2, 128, 128), (2, 3, 100, 90), (1, 9000)]
)
@pytest.mark.parametrize(
    "kind", ["bool", "int16", "int32", "int64", "float32", "complex64", "complex128"]
)
def test_triangles_of_larger_matrices(shape: tuple[int, ...], kind: str) -> None:
    """They are copied as numbers of their size, also where these would be NaN."""
    count = int(np.prod(shape)) * np.dtype(kind).itemsize
    x = np.random.default_rng(0).integers(0, 256, count, np.uint8)
    x = (x % 2 if kind == "bool" else x).view(kind).reshape(shape)
    for given in (x, np.swapaxes(x, -2, -1)):
        for offset in (0, -1, 1, -7, 30, -95, 95, 129, -129, 200, -200):
            for upper, expected in ((False, np.tril), (True, np.triu)):
                found = cut_triangle(given, offset, upper=upper)
                assert found.dtype == x.dtype and found.flags.c_contiguous
                assert found.tobytes() == expected(given, offset).tobytes()


@pytest.mark.parametrize("kind", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("shape", [(128, 128), (3, 200, 130), (2, 130, 257), (0, 200, 200)])
def test_columns_and_back(shape: tuple[int, ...], kind: str) -> None:
    x = numbers(*shape).astype(kind)
    x[..., 0, :4] = [np.nan, np.inf, -0.0, 1e-45]
    columns = to_columns(x)
    assert columns.flags.c_contiguous
    np.testing.assert_array_equal(columns, np.swapaxes(x, -2, -1).reshape(columns.shape))
    assert to_rows(columns, shape).tobytes() == x.tobytes()


@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 10.0, 100.0])
@pytest.mark.parametrize(("kind", "tolerance"), [("float32", 1e-4), ("complex128", 1e-11)])
def test_matrix_exponential(scale: float, kind: str, tolerance: float) -> None:
    a = (scale * numbers(3, 4, 4, complex=kind == "complex128") / 4 - scale * np.eye(4)).astype(
        kind
    )
    found = exponential.matrix_exp(a)
    assert found.dtype == a.dtype
    for one, expected in zip(found, map(scipy.linalg.expm, a.astype("complex128")), strict=True):
        np.testing.assert_allclose(one, expected, atol=tolerance * np.abs(expected).max())


def test_matrix_exponential_of_infinities_is_nan() -> None:
    a = np.stack([np.full((2, 2), np.inf), np.zeros((2, 2))])
    found = exponential.matrix_exp(a)
    assert np.isnan(found[0]).all()
    np.testing.assert_array_equal(found[1], np.eye(2))
