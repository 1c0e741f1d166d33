"""The matrix algorithms NumPy lacks, against SciPy and by what defines them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

from evergrad.ops.rows.linalg import exponential, kernels
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
    x = kernels.substitute(a, b, upper=upper, unit=False)
    np.testing.assert_allclose(
        (np.triu(a) if upper else np.tril(a)) @ x, np.stack([b, b]), atol=1e-12
    )


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
