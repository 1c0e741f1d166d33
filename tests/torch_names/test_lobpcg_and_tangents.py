"""``torch.lobpcg``, tangents that have gradients, and the types of sizes."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad


def matrices(ns: Any, batch: tuple[int, ...] = ()) -> Any:
    numbers = np.random.default_rng(3).normal(size=(*batch, 9, 9))
    return ns.tensor(numbers @ np.swapaxes(numbers, -1, -2) + 5 * np.eye(9))


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("largest", [True, False, None])
@pytest.mark.parametrize("generalized", [False, True])
def test_eigenvalues(
    torch: ModuleType, batch: tuple[int, ...], largest: bool | None, generalized: bool
) -> None:
    found = []
    for ns in (evergrad, torch):
        A = matrices(ns, batch)
        B = ns.eye(9, dtype=ns.float64) * 2 + 0.1 if generalized else None
        if B is not None and batch:
            B = B.expand(*batch, 9, 9).clone()
        ns.manual_seed(0)
        values, vectors = ns.lobpcg(A, k=2, B=B, largest=largest, niter=300, tol=1e-12)
        right = vectors if B is None else B @ vectors
        assert (A @ vectors - right * values.unsqueeze(-2)).abs().max() < 1e-4
        found.append(values.numpy())
    np.testing.assert_allclose(*found, rtol=1e-6)


def test_gradients(torch: ModuleType) -> None:
    found = []
    for ns in (evergrad, torch):
        A = matrices(ns).requires_grad_()
        ns.manual_seed(0)
        values, _ = ns.lobpcg(A, k=2, niter=300, tol=1e-12)
        values.pow(2).sum().backward()
        found.append(A.grad.numpy())
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-4)


def test_small_matrices_are_refused() -> None:
    with pytest.raises(ValueError, match="3 x the number of requested eigenpairs"):
        evergrad.lobpcg(evergrad.eye(5), k=2)
    with pytest.raises(ValueError, match="method"):
        evergrad.lobpcg(evergrad.eye(5), k=1, method="other")


@pytest.mark.filterwarnings("ignore")  # PyTorch warns of its own torch.jit.script
@pytest.mark.parametrize("of", ["primal", "weight", "neither"])
def test_tangents_have_gradients(torch: ModuleType, of: str) -> None:
    found = []
    for ns in (evergrad, torch):
        ad = ns.autograd.forward_ad
        x = ns.tensor([1.0, 2.0], requires_grad=of == "primal")
        w = ns.tensor([3.0, 4.0], requires_grad=of == "weight")
        with ad.dual_level():
            tangent = ad.unpack_dual(ad.make_dual(x, ns.tensor([1.0, 0.5])) ** 3 * w).tangent
            assert tangent.requires_grad is (of != "neither")
            result = [tangent.detach().numpy()]
            if of != "neither":
                leaf = x if of == "primal" else w
                result.append(ns.autograd.grad(tangent.sum(), leaf)[0].numpy())
        found.append(result)
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_types_of_sizes(torch: ModuleType) -> None:
    from evergrad.nn import common_types

    theirs = [name for name in vars(torch.nn.common_types) if name.endswith("_t")]
    assert len(theirs) > 15
    assert all(hasattr(common_types, name) for name in theirs)
