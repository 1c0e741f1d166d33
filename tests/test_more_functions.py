"""Functions without a row of their own, and options of some, against PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad
from evergrad.testing.samples import complex_normal, distinct, integers, normal, positive

inf, nan = float("inf"), float("nan")

Call = Callable[..., Any]


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    module: ModuleType = pytest.importorskip("torch", reason="PyTorch is the reference here")
    return module


def leaves(found: Any) -> list[Any]:
    if isinstance(found, tuple | list):
        return [leaf for part in found for leaf in leaves(part)]
    return [found]


def as_array(tensor: Any) -> Any:
    return tensor.detach().resolve_conj().numpy()


def compare(torch: ModuleType, call: Call, arrays: tuple[Any, ...], gradients: bool) -> None:
    """The same results and, if wanted, the same gradient by the first argument."""
    answers = []
    for library in (evergrad, torch):
        tensors = [library.tensor(a) for a in arrays]
        if gradients:
            tensors[0].requires_grad_()
        found = leaves(call(library, *tensors))
        answers.append(found)
        if gradients:
            total = sum((f * f.conj()).real.sum() if f.is_complex() else (f * f).sum()
                        for f in found if f.requires_grad)  # fmt: skip
            total.backward()
            found.append(tensors[0].grad)
    for ours, theirs in zip(*answers, strict=True):
        assert str(ours.dtype).rpartition(".")[2] == str(theirs.dtype).rpartition(".")[2]
        assert tuple(ours.shape) == tuple(theirs.shape)
        np.testing.assert_allclose(as_array(ours), as_array(theirs), rtol=1e-9, atol=1e-12)


IMAGE = normal(2, 3, 7, 6)
SPACED = np.array([0.0, 1.0, 3.0, 4.0, 8.0])

SMOOTH: dict[str, tuple[Any, ...]] = {
    "angle": (lambda ns, x: ns.angle(x), complex_normal(3, 2)),
    "angle of real numbers": (lambda ns, x: x.angle(), np.array([-1.0, 0.0, -0.0, 2.0, -inf])),
    "deg2rad": (lambda ns, x: ns.deg2rad(x), normal(3)),
    "rad2deg": (lambda ns, x: x.rad2deg(), normal(3)),
    "gradient": (lambda ns, x: ns.gradient(x), normal(4, 3)),
    "gradient with steps": (lambda ns, x: ns.gradient(x, spacing=[0.5, 2.0], edge_order=2),
                            normal(4, 3)),
    "gradient at coordinates": (
        lambda ns, x, c: ns.gradient(x, spacing=(c,), dim=1, edge_order=2),
        normal(2, 5), SPACED),
    "gradient at coordinates, first order": (
        lambda ns, x: ns.gradient(x, spacing=(ns.tensor(SPACED),), dim=0), normal(5, 2)),
    "cov": (lambda ns, x: ns.cov(x), normal(3, 5)),
    "cov of a vector": (lambda ns, x: x.cov(correction=0), normal(5)),
    "cov of complex numbers": (lambda ns, x: ns.cov(x), complex_normal(2, 4)),
    "cov with weights": (
        lambda ns, x, f, a: ns.cov(x, correction=1, fweights=f, aweights=a),
        normal(3, 4), integers(1, 4, 4), positive(4)),
    "corrcoef": (lambda ns, x: ns.corrcoef(x), normal(3, 5)),
    "renorm": (lambda ns, x: ns.renorm(x, 2, 0, 1.5), normal(3, 4)),
    "renorm of another dimension": (lambda ns, x: x.renorm(1, 1, 2.0), normal(3, 4, 2)),
    "sum_to_size": (lambda ns, x: x.sum_to_size(3, 1), normal(2, 3, 4)),
    "logcumsumexp of complex numbers": (lambda ns, x: ns.logcumsumexp(x, 1), complex_normal(2, 4)),
    "narrow_copy": (lambda ns, x: x.narrow_copy(1, 1, 2), normal(2, 4)),
    "slice_copy": (lambda ns, x: ns.slice_copy(x, 1, 0, 4, 2), normal(2, 4)),
    "split_copy": (lambda ns, x: ns.split_copy(x, 2, 1), normal(2, 4)),
    "expand_copy": (lambda ns, x: ns.expand_copy(x, (3, 2)), normal(2)),
    "permute_copy": (lambda ns, x: ns.permute_copy(x, (1, 0)), normal(2, 3)),
    "unfold_copy": (lambda ns, x: ns.unfold_copy(x, 0, 2, 1), normal(4)),
    **{
        f"interpolate {mode} {options}": (
            lambda ns, x, m=mode, o=options: ns.nn.functional.interpolate(
                x, mode=m, antialias=True, **o), IMAGE)
        for mode in ("bilinear", "bicubic", "lanczos")
        for options in ({"size": (3, 4)}, {"size": (3, 11)}, {"scale_factor": 0.6},
                        {"size": (2, 3), "align_corners": True})
        if not (mode == "lanczos" and "align_corners" in options)
    },
}  # fmt: skip

COUNTS: dict[str, tuple[Any, ...]] = {
    # The gradient PyTorch has for this is not that of the function.
    "as_strided_scatter": (lambda ns, x, y: ns.as_strided_scatter(x, y, (2, 2), (4, 1), 1),
                           normal(3, 3), normal(2, 2)),
    "histogram": (lambda ns, x: ns.histogram(x, 5), normal(4, 5)),
    "histogram in a range": (lambda ns, x, w: x.histogram(4, range=(-1.0, 2.0), weight=w),
                             normal(20), positive(20)),
    "histogram density": (lambda ns, x: ns.histogram(x, bins=3, density=True), normal(20)),
    "histogram of edges": (lambda ns, x, e: ns.histogram(x, e), np.array([1.0, 2, 1, 4, nan, 3]),
                           np.array([0.0, 1.0, 2.5, 3.0])),
    "histogram of nothing": (lambda ns, x: ns.histogram(x, 3), np.zeros(0)),
    "histogram of one value": (lambda ns, x: ns.histogram(x, 3), np.ones(2)),
    "histogramdd": (lambda ns, x, w: ns.histogramdd(x, [3, 2], weight=w), normal(9, 2),
                    positive(9)),
    "histogramdd density": (
        lambda ns, x: ns.histogramdd(x, 2, range=[-1.0, 1.0, -2.0, 1.0], density=True),
        normal(4, 3, 2)),
    "histogramdd of edges": (lambda ns, x, a, b: ns.histogramdd(x, [a, b]), normal(9, 2),
                             np.array([-1.0, 0.0, 1.0]), np.array([-2.0, 2.0])),
    "unravel_index": (lambda ns, i: ns.unravel_index(i, (2, 3, 4)), np.array([[5, 23], [-1, 30]])),
    "nonzero_static": (lambda ns, x: ns.nonzero_static(x, size=5), integers(0, 2, 2, 3)),
    "nonzero_static cut": (lambda ns, x: x.nonzero_static(size=1, fill_value=7), np.eye(2)),
    "angle of integers": (lambda ns, x: ns.angle(x), np.array([3, -2, 0])),
    "deg2rad of integers": (lambda ns, x: ns.deg2rad(x), np.array([3, 180])),
    "gradient of integers": (lambda ns, x: ns.gradient(x), np.array([3, 5, 9])),
    "cov of integers": (lambda ns, x: ns.cov(x), integers(-5, 5, 2, 4)),
    "logcumsumexp of infinities": (lambda ns, x: ns.logcumsumexp(x, 0),
                                   np.array([-inf, 2 - 1j, complex(inf, 2.0)])),
    "map_": (lambda ns, x, y: x.clone().map_(y, lambda a, b: a + 2 * b), normal(2, 3), normal(3)),
    "dim_order": (lambda ns, x: ns.tensor(x.transpose(0, 2).dim_order()), normal(2, 3, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", SMOOTH)
def test_value_and_gradient(torch: ModuleType, name: str) -> None:
    call, *arrays = SMOOTH[name]
    compare(torch, call, tuple(arrays), gradients=True)


@pytest.mark.parametrize("name", COUNTS)
def test_value(torch: ModuleType, name: str) -> None:
    call, *arrays = COUNTS[name]
    compare(torch, call, tuple(arrays), gradients=False)


@pytest.mark.parametrize(
    "call",
    [
        lambda ns: ns.gcd(ns.tensor([1.0]), ns.tensor([2])),
        lambda ns: ns.gcd(ns.tensor([4]), 2),
        lambda ns: ns.frexp(ns.tensor([1])),
        lambda ns: ns.deg2rad(ns.tensor([1j])),
        lambda ns: ns.gradient(ns.ones(2, 3), spacing=[1.0, 0.5, 0.2]),
        lambda ns: ns.gradient(ns.ones(1)),
        lambda ns: ns.gradient(ns.ones(4), edge_order=3),
        lambda ns: ns.cov(ns.zeros(2, 2, 2)),
        lambda ns: ns.cov(ns.zeros(4), fweights=ns.ones(4)),
        lambda ns: ns.cov(ns.zeros(4), aweights=ns.ones(3)),
        lambda ns: ns.renorm(ns.ones(4), 2, 0, 1.0),
        lambda ns: ns.renorm(ns.ones(2, 2), -1, 0, 1.0),
        lambda ns: ns.renorm(ns.ones(2, 2), 2, 0, -1.0),
        lambda ns: ns.histogram(ns.tensor([1, 2]), 4),
        lambda ns: ns.histogram(ns.tensor([1.0]), 0),
        lambda ns: ns.histogram(ns.tensor([1.0]), 2, range=(3.0, 1.0)),
        lambda ns: ns.histogram(ns.tensor([nan]), 2),
        lambda ns: ns.histogram(ns.ones(4), 4, weight=ns.ones(2)),
        lambda ns: ns.histogramdd(ns.ones(4), 4),
        lambda ns: ns.unravel_index(ns.ones(1), (2, 2)),
        lambda ns: ns.unravel_index(ns.tensor([1]), (-2, 2)),
        lambda ns: ns.ones(2, 3).sum_to_size(2),
        lambda ns: ns.nonzero_static(ns.ones(1), size=-1),
        lambda ns: ns.as_strided_scatter(ns.zeros(2, 3), ns.ones(3), (2,), (3,), 1),
        lambda ns: ns.nn.functional.interpolate(ns.ones(1, 1, 4), 2, mode="linear", antialias=True),
        lambda ns: ns.nn.functional.interpolate(ns.ones(1, 1, 4, 4), 2, mode="lanczos"),
        lambda ns: ns.linalg.ldl_factor(ns.ones(2, 3)),
        lambda ns: ns.linalg.ldl_factor(ns.zeros(2, 2)),
        lambda ns: ns.special.bessel_j0(ns.ones(1, dtype=ns.float16)),
        lambda ns: ns.pca_lowrank(ns.ones(3, 2), 4),
    ],
)
def test_refusals(torch: ModuleType, call: Call) -> None:
    kinds = []
    for library in (torch, evergrad):
        with pytest.raises(Exception) as caught:
            call(library)
        kinds.append(caught.type)
    assert issubclass(kinds[1], next(k for k in kinds[0].__mro__ if k.__module__ == "builtins"))


def test_in_place_forms(torch: ModuleType) -> None:
    for library in (evergrad, torch):
        x = library.tensor([4, 6])
        assert library.gcd_(x, library.tensor([6, 9])) is x
        assert x.tolist() == [2, 3]
        y = library.ones(2, 2) * 3
        assert y.renorm_(2, 0, 1.0) is y
        assert library.allclose(y, library.full((2, 2), 0.5**0.5))
        z = library.tensor([1 + 2j])
        assert library.conj_physical_(z) is z
        assert z.tolist() == [1 - 2j]


def test_no_degree_of_freedom(torch: ModuleType) -> None:
    for library in (evergrad, torch):
        with pytest.warns(UserWarning, match="degrees of freedom"):
            assert library.cov(library.tensor(3.0)).isnan()


@pytest.mark.parametrize("shape", [(9, 5), (5, 9)])
def test_low_rank_factors_draw_the_same_numbers(torch: ModuleType, shape: tuple[int, int]) -> None:
    matrix = normal(*shape)
    found = []
    for library in (evergrad, torch):
        library.manual_seed(3)
        u, s, v = library.svd_lowrank(library.tensor(matrix), q=2, niter=1)
        found.append((as_array((u * s) @ v.mT), as_array(s)))
        library.manual_seed(3)
        u, s, v = library.pca_lowrank(library.tensor(matrix), q=3)
        found[-1] += (as_array((u * s) @ v.mT), as_array(s))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_copies_do_not_share_memory() -> None:
    x = evergrad.tensor(distinct(3, 3))
    for copied in (x.narrow_copy(0, 0, 2), evergrad.t_copy(x), evergrad.alias_copy(x),
                   *evergrad.unbind_copy(x)):  # fmt: skip
        copied.fill_(100.0)
    assert float(x.max()) < 100


def test_gradient_of_as_strided_scatter() -> None:
    def function(x: Any, y: Any) -> Any:
        return evergrad.as_strided_scatter(x, y, (2, 2), (4, 1), 1)

    points = [evergrad.tensor(a).requires_grad_() for a in (normal(3, 3), normal(2, 2))]
    assert evergrad.autograd.gradcheck(function, points)


def test_the_derivative_of_ldl_factor_is_not_known() -> None:
    x = evergrad.eye(2).requires_grad_()
    with pytest.raises(RuntimeError, match="ldl_factor"):
        evergrad.linalg.ldl_factor(x).LD.sum().backward()


def test_degenerate_interpolation_keeps_images(torch: ModuleType) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        image = evergrad.tensor(IMAGE)
        same = evergrad.nn.functional.interpolate(image, (7, 6), mode="bicubic", antialias=True)
    assert evergrad.equal(same, image)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("antialias", [False, True])
def test_bytes_are_interpolated_as_numbers(mode: str, antialias: bool, torch: ModuleType) -> None:
    """PyTorch's weights have 16 bits, so a byte may differ by one."""
    values = np.random.default_rng(0).integers(0, 256, (2, 3, 7, 6)).astype(np.uint8)

    def resized(ns: Any) -> Any:
        image = ns.tensor(values)
        found = ns.nn.functional.interpolate(image, (5, 9), mode=mode, antialias=antialias)
        assert found.dtype is ns.uint8
        return found.numpy().astype(np.int64)

    assert np.abs(resized(evergrad) - resized(torch)).max() <= 1
