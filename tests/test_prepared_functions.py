"""Functions whose ops are cached by the types of their arguments: every call gives what the first
one gave, whatever the arguments are, with and without a graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evergrad as eg
import evergrad.nn.functional as F
from evergrad.core import prepared
from evergrad.core.prepared import Plan

CALLS = 4


def filled(*shape: int) -> eg.Tensor:
    return eg.tensor(np.random.default_rng(sum(shape)).standard_normal(shape).astype("f4"))


def places(*shape: int, most: int) -> eg.Tensor:
    return eg.tensor(np.random.default_rng(sum(shape)).integers(0, most, shape))


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "stack": (lambda a, b: eg.stack([a, b], 1), (filled(5, 7), filled(5, 7))),
    "max": (lambda a: a.max(1), (filled(5, 7),)),
    "min keepdim": (lambda a: eg.min(a, dim=0, keepdim=True), (filled(5, 7),)),
    "argmax": (lambda a: a.argmax(-1), (filled(5, 7),)),
    "topk": (lambda a: a.topk(3, largest=False), (filled(20, 9),)),
    "kthvalue": (lambda a: a.kthvalue(2, 0), (filled(5, 7),)),
    "aminmax": (lambda a: eg.aminmax(a, dim=1), (filled(5, 7),)),
    "gather": (lambda a, i: a.gather(1, i), (filled(5, 7), places(5, 3, most=7))),
    "index_select": (lambda a, i: a.index_select(0, i), (filled(5, 7), places(9, most=5))),
    "index_add": (
        lambda a, i, s: a.index_add(0, i, s, alpha=2), (filled(5, 7), places(9, most=5),
                                                        filled(9, 7))),
    "scatter_add": (
        lambda a, i, s: a.scatter_add(0, i, s), (filled(5, 7), places(6, 7, most=5), filled(6, 7))),
    "scatter number": (lambda a, i: a.scatter(0, i, 2.5), (filled(5, 7), places(6, 7, most=5))),
    "index_copy": (
        lambda a, i, s: a.index_copy(1, i, s), (filled(5, 7), eg.tensor([4, 1]), filled(5, 2))),
    "layer_norm": (lambda a, w: F.layer_norm(a, (7,), w), (filled(5, 7), filled(7))),
    "large layer_norm": (
        lambda a, w, b: F.layer_norm(a, a.shape[-1:], w, b),
        (filled(50, 64), filled(64), filled(64))),
    "group_norm": (lambda a: F.group_norm(a, 2), (filled(2, 4, 9, 9),)),
    "rms_norm": (lambda a: F.rms_norm(a, (7,)), (filled(5, 7),)),
    "mse_loss": (F.mse_loss, (filled(5, 7), filled(5, 7) + 1)),
    "huber_loss": (
        lambda a, b: F.huber_loss(a, b, delta=0.5), (filled(5, 7), filled(5, 7) + 1)),
    "smooth_l1_loss": (
        lambda a, b: F.smooth_l1_loss(a, b, reduction="none"), (filled(5, 7), filled(5, 7) + 1)),
    "bce_with_logits": (F.binary_cross_entropy_with_logits, (filled(5, 7), filled(5, 7).abs())),
    "bilinear": (
        lambda a: F.interpolate(a, scale_factor=2, mode="bilinear"), (filled(2, 3, 5, 7),)),
    "nearest": (lambda a: F.interpolate(a, size=(4, 9)), (filled(2, 3, 5, 7),)),
    "bicubic": (
        lambda a: F.interpolate(a, size=(4, 9), mode="bicubic", align_corners=True),
        (filled(2, 3, 5, 7),)),
    "avg_pool2d": (lambda a: F.avg_pool2d(a, 2, padding=1), (filled(2, 3, 6, 8),)),
    "adaptive": (lambda a: F.adaptive_avg_pool2d(a, (3, None)), (filled(2, 3, 6, 8),)),
    "repeat_interleave": (lambda a: a.repeat_interleave(3, 1), (filled(5, 7),)),
    "by counts": (
        lambda a, n: a.repeat_interleave(n, 0), (filled(3, 7), eg.tensor([2, 0, 1]))),
    "roll": (lambda a: a.roll((1, -2), (0, 1)), (filled(5, 7),)),
    "flip": (lambda a: a.flip(0, 1), (filled(5, 7),)),
    "tile": (lambda a: a.repeat(2, 1, 3), (filled(5, 7),)),
    "pad": (lambda a: F.pad(a, [1, 2, 0, 3], value=1.5), (filled(5, 7),)),
    "reflect": (lambda a: F.pad(a, (1, 2), mode="reflect"), (filled(1, 5, 7),)),
    "einsum": (
        lambda a, b: eg.einsum("bij,kj->bik", a, b), (filled(2, 5, 7), filled(3, 7))),
    "outer": (eg.outer, (filled(5), filled(7))),
    "addmm": (
        lambda a, b, c: eg.addmm(a, b, c, beta=0.5, alpha=2),
        (filled(7), filled(5, 3), filled(3, 7))),
    "cdist": (eg.cdist, (filled(5, 3), filled(7, 3))),
    "cosine": (F.cosine_similarity, (filled(5, 7), filled(5, 7) + 1)),
    "normalize": (F.normalize, (filled(5, 7),)),
    "gelu": (F.gelu, (filled(5, 7),)),
    "glu": (F.glu, (filled(5, 8),)),
    "cross_entropy": (F.cross_entropy, (filled(5, 7), places(5, most=7))),
    "large cross_entropy": (F.cross_entropy, (filled(50, 70), places(50, most=70))),
    "smoothed": (
        lambda a, t, w: F.cross_entropy(a, t, w, label_smoothing=0.1),
        (filled(5, 7), places(5, most=7), filled(7).abs())),
    "nll_loss": (F.nll_loss, (filled(5, 7), places(5, most=7))),
}  # fmt: skip


def as_arrays(found: Any) -> list[np.ndarray[Any, Any]]:
    return [np.array(t.detach().numpy()) for t in (found if isinstance(found, tuple) else (found,))]


def first_call(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    prepared.clear_plans()
    return function(*args)


def gradients(function: Callable[..., Any], args: tuple[Any, ...]) -> list[Any]:
    leaves = [a.detach().clone().requires_grad_(a.is_floating_point()) for a in args]
    found = function(*leaves)
    floats = [t for t in (found if isinstance(found, tuple) else (found,)) if t.requires_grad]
    for t in floats:
        (t * eg.arange(t.numel()).reshape(t.shape)).sum().backward(retain_graph=True)
    return [None if a.grad is None else a.grad.numpy() for a in leaves]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_call_gives_what_the_first_gave(name: str) -> None:
    function, args = FUNCTIONS[name]
    first = first_call(function, args)
    expected, kind = as_arrays(first), type(first)
    for _ in range(CALLS):
        found = function(*args)
        assert type(found) is kind
        for a, b in zip(as_arrays(found), expected, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
        parts = found if isinstance(found, tuple) else (found,)
        for t, of_first in zip(parts, first if isinstance(first, tuple) else (first,), strict=True):
            assert t._is_view() == of_first._is_view()
            assert t.stride() == of_first.stride()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_graph_is_that_of_the_first_call(name: str) -> None:
    function, args = FUNCTIONS[name]
    prepared.clear_plans()
    expected = gradients(function, args)
    for _ in range(CALLS):
        for a, b in zip(gradients(function, args), expected, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_other_elements_and_strides(name: str) -> None:
    function, args = FUNCTIONS[name]
    for _ in range(CALLS):
        function(*args)
    for change in (lambda a: a * 3 - 1, lambda a: eg.stack([a, a], -1)[..., 0]):
        other = tuple(change(a) if a.is_floating_point() else a for a in args)
        expected = as_arrays(first_call(function, other))
        for _ in range(CALLS):
            function(*args)
        for _ in range(CALLS):
            for a, b in zip(as_arrays(function(*other)), expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def test_plans_are_recorded() -> None:
    prepared.clear_plans()
    x = filled(5, 7)
    for _ in range(CALLS):
        x.max(1)
    assert any(isinstance(p, Plan) for plans in prepared._tables for p in plans.values())


def test_a_tensor_given_twice_is_another_call() -> None:
    a, b = filled(5, 7), filled(5, 7) * 2
    prepared.clear_plans()
    for _ in range(CALLS):
        eg.stack([a, a])
    np.testing.assert_array_equal(eg.stack([a, b]).numpy(), np.stack([a.numpy(), b.numpy()]))
    for _ in range(CALLS):
        eg.stack([a, b])
    np.testing.assert_array_equal(eg.stack([b, b]).numpy(), np.stack([b.numpy(), b.numpy()]))


def test_numbers_of_other_types_are_other_arguments() -> None:
    x = filled(5, 7)
    prepared.clear_plans()
    for _ in range(CALLS):
        x.max(1)
    with pytest.raises(TypeError):
        x.max(True)


def test_counts_are_read_every_time() -> None:
    x, counts = filled(3, 2), eg.tensor([2, 0, 1])
    for _ in range(CALLS):
        assert x.repeat_interleave(counts, 0).shape == (3, 2)
    counts[1] = 4
    assert x.repeat_interleave(counts, 0).shape == (7, 2)


def test_warnings_are_repeated() -> None:
    prepared.clear_plans()
    for _ in range(CALLS):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            F.mse_loss(filled(5, 7), filled(7))
        assert len(found) == 1


def test_in_place_forms_write_every_time() -> None:
    total = eg.zeros(3)
    prepared.clear_plans()
    for n in range(CALLS):
        total.index_add_(0, eg.tensor([1, 1]), eg.ones(2))
        assert total.tolist() == [0, 2 * (n + 1), 0]


@pytest.mark.parametrize("target", [7, -1])
def test_targets_that_are_no_class(target: int) -> None:
    scores, targets = filled(5, 7), eg.tensor([0, 1, 2, 3, target])
    for _ in range(CALLS):
        with pytest.raises(IndexError, match=f"Target {target} is out of bounds"):
            F.cross_entropy(scores, targets)


def test_ignored_targets() -> None:
    scores, targets = filled(5, 7), eg.tensor([0, 1, -100, 3, -100])
    expected = F.cross_entropy(scores[[0, 1, 3]], eg.tensor([0, 1, 3]))
    for _ in range(CALLS):
        assert F.cross_entropy(scores, targets).item() == pytest.approx(expected.item())


def test_modes() -> None:
    x = filled(5, 7).requires_grad_()
    prepared.clear_plans()
    for _ in range(CALLS):
        with eg.no_grad():
            assert not F.layer_norm(x, (7,)).requires_grad
    assert F.layer_norm(x, (7,)).requires_grad
    with eg.inference_mode():
        assert F.layer_norm(x, (7,)).is_inference()
    with eg.autocast("cpu", eg.bfloat16):
        assert eg.addmm(x[0], x, x.t()[:, :5] @ eg.ones(5, 7)).dtype is eg.bfloat16
    first = eg.compile(lambda t: F.layer_norm(t, (7,)).max(1).values)(x.detach())
    np.testing.assert_allclose(
        first.numpy(), F.layer_norm(x, (7,)).max(1).values.detach().numpy(), rtol=1e-5
    )
