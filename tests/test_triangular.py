"""The native loop for triangular systems, beside OpenBLAS and PyTorch."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from evergrad import config
from evergrad.ops.rows.linalg import triangular
from evergrad.ops.rows.linalg.triangular import substitute
from linalg_twins import numbers
from twins import agree

TOLERANCES = {"float32": 1e-4, "float64": 1e-12}
# Rest rows and columns of tiles and of vectors, and systems that are solved in halves.
SIZES = [(1, 1), (2, 3), (7, 40), (8, 32), (9, 33), (33, 17), (64, 2), (130, 16), (161, 5),
         (330, 31)]  # fmt: skip


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triangular, "_WORTH_A_LOOP", 0)


def system(order: int, width: int, dtype: str, batch: int = 2) -> tuple[Any, Any]:
    a = numbers(batch, order, order) / order + 2 * np.eye(order)
    return a.astype(dtype), numbers(batch, order, width, seed=1).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(("upper", "unit", "adjoint"), list(np.ndindex(2, 2, 2)))
def test_solutions(
    upper: bool, unit: bool, adjoint: bool, size: tuple[int, int], dtype: str
) -> None:
    a, b = system(*size, dtype)
    order = size[0]
    read = np.triu(a, int(unit)) if upper else np.tril(a, -int(unit))
    beside = np.where((read == 0) & ~np.eye(order, dtype=bool), np.nan, a).astype(dtype)
    read = (read + np.eye(order) * unit).astype(dtype)
    x = substitute(beside, b, upper=bool(upper), unit=bool(unit), adjoint=bool(adjoint))
    assert x.dtype == b.dtype
    product = (np.swapaxes(read, 1, 2) if adjoint else read) @ x
    np.testing.assert_allclose(product, b, atol=TOLERANCES[dtype])


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("order", [40, 150])
def test_layouts_give_the_same_bits(order: int, upper: bool) -> None:
    a, b = system(order, 20, "float64")
    expected = substitute(a, b, upper=upper)
    wide = np.zeros((2, order, order + 3))
    wide[:, :, 2:-1] = a
    by_columns = np.ascontiguousarray(np.swapaxes(a, 1, 2)).swapaxes(1, 2)
    spread = np.repeat(np.repeat(a, 2, 1), 2, 2)[:, ::2, ::2]
    for other in (wide[:, :, 2:-1], by_columns, spread):
        np.testing.assert_array_equal(substitute(other, b, upper=upper), expected)
    for i in range(2):
        np.testing.assert_array_equal(substitute(a[i], b[i], upper=upper), expected[i])
    shared = substitute(a[0], b, upper=upper)
    np.testing.assert_array_equal(shared[0], expected[0])
    np.testing.assert_array_equal(shared[1], substitute(a[0], b[1], upper=upper))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_columns_do_not_depend_on_their_neighbours(dtype: str) -> None:
    a, b = system(60, 70, dtype)
    whole = substitute(a, b, upper=False)
    for part in (slice(0, 3), slice(33, 66), slice(64, 70)):
        some = np.ascontiguousarray(b[..., part])
        np.testing.assert_array_equal(substitute(a, some, upper=False), whole[..., part])


@pytest.mark.parametrize("values", [(0.0, 1.0), (0.0, 0.0), (np.nan, 1.0), (np.inf, np.inf)])
@pytest.mark.parametrize("upper", [False, True])
def test_special_values(torch: ModuleType, upper: bool, values: tuple[float, float]) -> None:
    def program(ns: Any) -> Any:
        a = ns.eye(20)
        a[4, 4] = values[0]
        b = ns.ones(20, 5)
        b[4, 2] = values[1]
        return ns.linalg.solve_triangular(a, b, upper=upper)

    agree(program, torch)


def test_the_loop_and_openblas_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = system(150, 40, "float64")
    found = substitute(a, b, upper=True, adjoint=True)
    monkeypatch.setattr(config, "EAGER_KERNELS", False)
    np.testing.assert_allclose(found, substitute(a, b, upper=True, adjoint=True), rtol=1e-11)
