"""Products of bfloat16 in compiled programs: sums in float32, rounded once; by dot products of
pairs where the machine has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import evergrad as eg

from .steps import num_threads

# m, n, k: whole and partial tiles and panels; too small, or of an odd number of pairs.
SHAPES = [
    (16, 16, 16), (17, 33, 18), (100, 70, 130), (37, 200, 302), (6, 64, 64), (96, 128, 64),
    (20, 20, 31),
]  # fmt: skip


def normal(*shape: int, seed: int = 0) -> Any:
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return eg.tensor(values).bfloat16()


def assert_product(found: Any, a: Any, b: Any) -> None:
    """Within one rounding to bfloat16, and those of a sum in float32."""
    a, b = a.double().numpy(), b.double().numpy()
    exact, size = a @ b, np.abs(a) @ np.abs(b)
    error = np.abs(found.double().numpy() - exact)
    assert (error <= 2.0**-8 * np.abs(exact) + 2.0**-20 * size).all()


@pytest.mark.parametrize("m, n, k", SHAPES)
def test_products_of_any_strides(m: int, n: int, k: int) -> None:
    a, b, turned = normal(m, k), normal(k, n, seed=1), normal(k, m, seed=2)
    compiled = eg.compile(
        lambda a, b, turned: (
            a @ b, turned.T @ b, eg.nn.functional.linear(a, b.T), a[:, None] @ b,
        )
    )  # fmt: skip
    found = compiled(a, b, turned)
    for x, left in zip(found, (a, turned.T, a), strict=False):
        assert_product(x, left, b)
    assert_product(found[3][:, 0], a, b)


def test_results_do_not_depend_on_threads() -> None:
    a, b = normal(300, 200), normal(200, 260, seed=1)
    found = []
    for threads in (1, 2):
        with num_threads(threads):
            found.append(eg.compile(lambda a, b: a @ b)(a, b).float().numpy())
    np.testing.assert_array_equal(*found)


def test_infinities_and_nan_stay_in_their_rows_and_columns() -> None:
    a, b = normal(40, 32), normal(32, 80, seed=1)
    a[3, 5], b[7, 70], a[11, 0] = float("nan"), float("inf"), float("-inf")
    ours = eg.compile(lambda a, b: a @ b)(a, b).double().numpy()
    with np.errstate(invalid="ignore"):
        theirs = a.double().numpy() @ b.double().numpy()
    np.testing.assert_array_equal(np.isnan(ours), np.isnan(theirs))
    np.testing.assert_array_equal(np.isinf(ours), np.isinf(theirs))


def test_a_layer_and_its_gradients() -> None:
    torch = pytest.importorskip("torch")

    def step(lib: Any, x: Any, w: Any, bias: Any) -> Any:
        y = lib.nn.functional.gelu(lib.nn.functional.linear(x, w, bias))
        return y, *lib.autograd.grad((y.float() ** 2).sum(), (x, w, bias))

    arrays = [normal(*s, seed=n) for n, s in enumerate(((64, 48), (80, 48), (80,)))]
    ours = eg.compile(lambda *a: step(eg, *a))(*[a.requires_grad_() for a in arrays])
    given = [torch.tensor(a.detach().float().numpy()).bfloat16() for a in arrays]
    theirs = step(torch, *[g.requires_grad_() for g in given])
    for a, b in zip(ours, theirs, strict=True):
        b = b.detach().float().numpy()
        limit = 0.02 * np.abs(b).max()
        np.testing.assert_allclose(a.detach().float().numpy(), b, rtol=0.02, atol=limit)
