"""Composites against PyTorch: the value and the gradient of every argument.

Functions without a row of their own have no samples; each call here runs on both libraries with
the same numbers. ``A(shape)`` stands for random numbers that want a gradient.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad
import evergrad.nn.functional as F
from oracle import assert_same

Array = np.ndarray[Any, Any]
Call = Callable[..., Any]  # call(namespace, functional, *tensors)


def A(*shape: int, seed: int = 0) -> Array:
    """Numbers around zero, the same for the same shape and seed."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def positive(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).uniform(0.1, 0.9, shape)


def classes(count: int, *shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).integers(0, count, shape)


def signs(*shape: int, seed: int = 0) -> Array:
    return np.where(A(*shape, seed=seed) > 0, 1.0, -1.0)


@dataclass(frozen=True)
class fixed:  # noqa: N801 - used like a function
    """An argument that wants no gradient."""

    array: Array


def tensors_of(namespace: Any, arguments: tuple[Any, ...]) -> list[Any]:
    made = []
    for argument in arguments:
        if isinstance(argument, fixed):
            made.append(namespace.tensor(argument.array))
        elif isinstance(argument, np.ndarray):
            wants = argument.dtype.kind in "fc"
            made.append(namespace.tensor(argument, requires_grad=wants))
        else:
            made.append(argument)
    return made


def flat(results: Any) -> list[Any]:
    return [r for part in results for r in flat(part)] if isinstance(results, tuple) else [results]


def values_and_gradients(
    namespace: Any, functional: Any, call: Call, arguments: tuple[Any, ...]
) -> tuple[list[Array], list[Array]]:
    tensors = tensors_of(namespace, arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = flat(call(namespace, functional, *tensors))
    values = [r.detach().numpy() for r in results]
    total: Any = 0
    for i, result in enumerate(results):
        if result.requires_grad:
            weights = namespace.tensor(np.asarray(A(*result.shape, seed=90 + i)))
            total = total + (result * weights).sum()
    leaves = [t for t in tensors if getattr(t, "requires_grad", False)]
    if isinstance(total, int):
        return values, []
    total.backward()
    return values, [
        np.zeros(leaf.shape) if leaf.grad is None else leaf.grad.numpy() for leaf in leaves
    ]


CASES: dict[str, list[tuple[Call, tuple[Any, ...]]]] = {}


def case(name: str, call: Call, *arguments: Any) -> None:
    CASES.setdefault(name, []).append((call, arguments))


def named(name: str, *arguments: Any, **options: Any) -> None:
    """A call of ``functional.<name>``: tensors first, then options."""

    def call(namespace: Any, functional: Any, *tensors: Any) -> Any:
        return getattr(functional, name)(*tensors, **options)

    case(name, call, *arguments)


# -- activations --------------------------------------------------------------------------------

CORNERS = np.array([-4.0, -3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, 6.0, 7.0])
FAR = np.array([-800.0, -30.0, 30.0, 800.0])

WRITING = [
    "relu", "relu6", "hardtanh", "hardsigmoid", "hardswish", "silu", "mish", "elu", "selu", "celu",
    "leaky_relu",
]  # fmt: skip
READING = [
    "hardshrink", "softshrink", "tanhshrink", "softsign", "gelu", "softplus", "logsigmoid", "rrelu",
    "sigmoid", "tanh",
]  # fmt: skip
for curve in WRITING + READING:
    for points in (A(3, 4), CORNERS, FAR, A(0, 3), np.array(0.3)):
        named(curve, points)
for curve in WRITING:
    case(curve, lambda ns, f, x, c=curve: getattr(f, c)(x * 1, inplace=True), CORNERS)
named("gelu", A(3, 4), approximate="tanh")
named("elu", CORNERS, alpha=1.7)
named("celu", CORNERS, alpha=1.7)
named("leaky_relu", CORNERS, negative_slope=0.3)
named("hardtanh", CORNERS, min_val=-3.0, max_val=0.5)
named("hardshrink", CORNERS, lambd=1.0)
named("softshrink", CORNERS, lambd=1.0)
named("softplus", CORNERS, beta=2.0, threshold=5.0)
named("threshold", CORNERS, threshold=0.5, value=-2.0)
named("rrelu", CORNERS, lower=0.1, upper=0.5)
named("prelu", A(2, 3, 4), positive(3))
named("prelu", A(2, 3), positive(1))
named("prelu", A(2, 3), np.array(0.3))
named("prelu", np.array(-0.3), positive(1))
named("glu", A(3, 4))
named("glu", A(4, 3), dim=0)
for name in ("leaky_relu_", "hardtanh_", "elu_", "celu_", "selu_", "relu_"):
    case(name, lambda ns, f, x, name=name: getattr(f, name)(x * 1), CORNERS)
case("threshold_", lambda ns, f, x: f.threshold_(x * 1, 0.5, -2.0), CORNERS)

for name in ("softmax", "log_softmax", "softmin"):
    named(name, A(3, 4), dim=1)
    named(name, A(3, 4), dim=0)
    named(name, A(2, 3, 4) * 500, dim=-1)
    named(name, A(5), dim=None)
    named(name, A(0, 3), dim=1)
    named(name, A(2, 0), dim=1)
    named(name, np.array(1.5), dim=0)
    named(name, fixed(np.full((2, 3), -math.inf)), dim=1)
    named(name, fixed(np.array([[-math.inf, 0.0, 1.0], [math.inf, 0.0, 1.0]])), dim=1)
    case(name, lambda ns, f, x, name=name: getattr(f, name)(x, 1, dtype=ns.float64), A(3, 4))
for name in ("softmax", "log_softmax"):
    case(name, lambda ns, f, x, name=name: getattr(ns, name)(x, 1), A(3, 4))
    case(name, lambda ns, f, x, name=name: getattr(x, name)(-1), A(3, 4))

# -- normalisation ------------------------------------------------------------------------------

named("layer_norm", A(3, 4), (4,))
named("layer_norm", A(2, 3, 4), [3, 4], A(3, 4, seed=1), A(3, 4, seed=2))
named("layer_norm", A(2, 4), (4,), A(4, seed=1), None, 0.1)
named("rms_norm", A(2, 3, 4), (4,), A(4, seed=1))
named("rms_norm", A(2, 3, 4), (3, 4), None, 0.1)
named("group_norm", A(2, 6, 3), 3, A(6, seed=1), A(6, seed=2))
named("group_norm", A(2, 4), 2)
named("instance_norm", A(2, 3, 4), None, None, A(3, seed=1), A(3, seed=2))
named("instance_norm", A(2, 3, 2, 2))
named("local_response_norm", A(2, 5, 3), size=3, alpha=0.3, beta=0.6, k=1.5)
named("local_response_norm", A(2, 5, 3, 2), size=2, alpha=0.3)
named("batch_norm", A(4, 3), None, None, A(3, seed=1), A(3, seed=2), training=True)
named("batch_norm", A(2, 3, 4), None, None, training=True, eps=0.1)


def with_running_statistics(name: str, **options: Any) -> Call:
    """Also gives the running statistics after the call."""

    def call(ns: Any, f: Any, x: Any, weight: Any, bias: Any) -> Any:
        mean = ns.tensor([0.3, -0.2, 0.1], dtype=ns.float64)
        var = ns.tensor([1.3, 0.2, 0.7], dtype=ns.float64)
        result = getattr(f, name)(x, mean, var, weight, bias, **options)
        return result, mean, var

    return call


for shape in ((4, 3), (2, 3, 4), (2, 3, 2, 2)):
    for training in (True, False):
        case(
            "batch_norm",
            with_running_statistics("batch_norm", training=training, momentum=0.3),
            A(*shape), A(3, seed=1), A(3, seed=2),
        )  # fmt: skip
for use_input_stats in (True, False):
    case(
        "instance_norm",
        with_running_statistics("instance_norm", use_input_stats=use_input_stats, momentum=0.3),
        A(2, 3, 4), A(3, seed=1), A(3, seed=2),
    )  # fmt: skip

# -- distances ----------------------------------------------------------------------------------

for p in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf):
    case("cdist", lambda ns, f, x, y, p=p: ns.cdist(x, y, p), A(3, 4), A(2, 4, seed=1))
    named("pairwise_distance", A(3, 4), A(3, 4, seed=1), p=p)
    named("pdist", A(4, 3), p=p)
case("cdist", lambda ns, f, x: ns.cdist(x, x), A(3, 4))
case("cdist", lambda ns, f, x, y: ns.cdist(x, y), A(5, 3, 4), A(2, 4, seed=1))
case("cdist", lambda ns, f, x, y: ns.cdist(x, y), A(2, 30, 4), A(2, 27, 4, seed=1))
case("cdist", lambda ns, f, x, y: ns.cdist(x, y), A(3, 0), A(2, 0))
named("pairwise_distance", A(3, 4), A(4, seed=1), keepdim=True)
named("cosine_similarity", A(3, 4), A(3, 4, seed=1))
named("cosine_similarity", A(3, 1, 4), A(2, 4, seed=1), dim=-1)
named("cosine_similarity", np.zeros((2, 3)), A(2, 3))
named("normalize", A(3, 4))
named("normalize", A(3, 4), p=1.0, dim=0)
named("normalize", np.zeros((2, 3)) + [[0.0], [1.0]], eps=0.5)
named("bilinear", A(3, 2), A(3, 4, seed=1), A(5, 2, 4, seed=2), A(5, seed=3))
named("bilinear", A(2, 3, 2), A(2, 3, 4, seed=1), A(5, 2, 4, seed=2))
named("linear", A(2, 3, 4), A(5, 4, seed=1), A(5, seed=2))

# -- products -----------------------------------------------------------------------------------

for equation, *shapes in (
    ("ij,jk", (2, 3), (3, 2)), ("ij,jk->ki", (2, 3), (3, 2)), ("ii", (3, 3)), ("ii->i", (3, 3)),
    ("iij->j", (2, 2, 3)), ("ij->ji", (2, 3)), ("ij->", (2, 3)), ("i,j", (2,), (3,)),
    ("i,i", (3,), (3,)), ("i,i->i", (3,), (3,)), ("bqhd,bkhd->bhqk", (2, 4, 3, 5), (2, 6, 3, 5)),
    ("...ij,...jk->...ik", (2, 1, 3, 4), (5, 4, 2)), ("...ij,...jk->ik", (5, 2, 3), (5, 3, 4)),
    ("i...->i", (2, 3, 4)), ("i...->...", (2, 3, 4)), ("...,...", (2, 1, 3), (4, 1)),
    ("ij,jk", (2, 1), (4, 2)), ("ij,ik->i", (2, 3), (2, 4)), ("ij,kl->", (2, 3), (4, 5)),
    ("bn,anm,bm->ba", (2, 5), (3, 5, 4), (2, 4)), ("bA,Ac", (2, 3), (3, 4)), ("", ()),
    (",i->i", (), (2,)), ("ij,jk", (2, 0), (0, 3)), ("iij,jkk->ik", (2, 2, 3), (3, 4, 4)),
    ("i j , jk -> i k", (2, 3), (3, 4)), ("ab,bc,cd,de->ae", (2, 3), (3, 4), (4, 5), (5, 6)),
):  # fmt: skip
    case(
        "einsum",
        lambda ns, f, *x, e=equation: ns.einsum(e, *x),
        *[np.asarray(A(*shape, seed=i)) for i, shape in enumerate(shapes)],
    )
case("einsum", lambda ns, f, a, b: ns.einsum(a, [0, 1], b, [1, 30], [30, 0]), A(2, 3), A(3, 4))
case("einsum", lambda ns, f, a: ns.einsum(a, [0, ...], [..., 0]), A(2, 3, 4))
for dims in (1, 0, ([1], [0]), ([-1, 0], [0, 1])):
    case("tensordot", lambda ns, f, a, b, d=dims: ns.tensordot(a, b, d), A(2, 3), A(3, 2, seed=1))
case("tensordot", lambda ns, f, a, b: ns.tensordot(a, b, ([1], [0])), A(2, 3), A(1, 2, seed=1))
for name, first, second in (
    ("mm", (2, 3), (3, 4)), ("bmm", (2, 3, 4), (2, 4, 5)), ("mv", (2, 3), (3,)),
    ("dot", (3,), (3,)), ("vdot", (3,), (3,)), ("inner", (2, 3), (4, 3)), ("inner", (), (4, 3)),
    ("outer", (2,), (3,)), ("kron", (2, 3), (4,)), ("kron", (2,), (2, 3, 2)),
):  # fmt: skip
    case(name, lambda ns, f, a, b, name=name: getattr(ns, name)(a, b),
         np.asarray(A(*first)), A(*second, seed=1))  # fmt: skip
for name, *shapes in (
    ("addmm", (5,), (2, 3), (3, 5)), ("addmv", (2,), (2, 3), (3,)), ("addr", (3,), (2,), (3,)),
    ("addbmm", (3, 5), (2, 3, 4), (2, 4, 5)), ("baddbmm", (3, 5), (2, 3, 4), (2, 4, 5)),
):  # fmt: skip
    for options in ({}, {"beta": 0.5, "alpha": -2}, {"beta": 0}, {"alpha": 0}):
        case(name, lambda ns, f, *x, name=name, o=options: getattr(ns, name)(*x, **o),
             *[A(*shape, seed=i) for i, shape in enumerate(shapes)])  # fmt: skip
case("cross", lambda ns, f, a, b: ns.cross(a, b, dim=1), A(2, 3), A(1, 3, seed=1))
case("cross", lambda ns, f, a, b: ns.cross(a, b), A(3, 2), A(3, 2, seed=1))
case("chain_matmul", lambda ns, f, *x: ns.chain_matmul(*x), A(2, 9), A(9, 1), A(1, 8), A(8, 3))

# -- losses -------------------------------------------------------------------------------------

X, Y = A(3, 4), A(3, 4, seed=1)
for reduction in ("none", "mean", "sum"):
    for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
        named(name, X, Y, reduction=reduction)
    for name in ("mse_loss", "l1_loss", "huber_loss"):
        named(name, X, Y, weight=None, reduction=reduction)
        case(
            name,
            lambda ns, f, x, y, w, name=name, r=reduction: getattr(f, name)(
                x, y, weight=w, reduction=r
            ),
            X, Y, positive(3, 4),
        )  # fmt: skip
    named("smooth_l1_loss", X, Y, beta=0.3, reduction=reduction)
    named("smooth_l1_loss", X, Y, beta=0.0, reduction=reduction)
    named("huber_loss", X, Y, delta=0.3, reduction=reduction)
    named("binary_cross_entropy", positive(3, 4), positive(3, 4, seed=1), reduction=reduction)
    named("binary_cross_entropy", positive(3, 4), positive(3, 4, seed=1), fixed(positive(4)),
          reduction=reduction)  # fmt: skip
    named("binary_cross_entropy_with_logits", X * 3, positive(3, 4), reduction=reduction)
    case(
        "binary_cross_entropy_with_logits",
        lambda ns, f, x, t, w, p, r=reduction: f.binary_cross_entropy_with_logits(
            x, t, weight=w, pos_weight=p, reduction=r
        ),
        X * 30, positive(3, 4), fixed(positive(4)), fixed(positive(4, seed=2)),
    )  # fmt: skip
    named("kl_div", X, positive(3, 4), reduction=reduction)
    named("kl_div", X, Y, reduction=reduction, log_target=True)
    named("poisson_nll_loss", X, fixed(positive(3, 4) * 5), reduction=reduction)
    named("poisson_nll_loss", positive(3, 4), fixed(positive(3, 4) * 5), log_input=False,
          full=True, reduction=reduction)  # fmt: skip
    named("gaussian_nll_loss", X, Y, positive(3, 4), reduction=reduction)
    named("gaussian_nll_loss", X, Y, positive(3, 1), full=True, eps=0.4, reduction=reduction)
    named("gaussian_nll_loss", X, Y, positive(3), reduction=reduction)
    named("hinge_embedding_loss", X, fixed(signs(3, 4)), margin=0.7, reduction=reduction)
    named("margin_ranking_loss", X, Y, fixed(signs(3, 4)), margin=0.7, reduction=reduction)
    named("soft_margin_loss", X, fixed(signs(3, 4)), reduction=reduction)
    named("multilabel_soft_margin_loss", X, fixed(positive(3, 4)), reduction=reduction)
    named("multilabel_soft_margin_loss", X, fixed(positive(3, 4)), fixed(positive(4)),
          reduction=reduction)  # fmt: skip
    named("cosine_embedding_loss", X, Y, fixed(signs(3)), margin=0.2, reduction=reduction)
    named("triplet_margin_loss", X, Y, A(3, 4, seed=2), margin=2.0, reduction=reduction)
    named("triplet_margin_loss", X, Y, A(3, 4, seed=2), swap=True, p=1, reduction=reduction)
    named("triplet_margin_with_distance_loss", X, Y, A(3, 4, seed=2), margin=2.0,
          reduction=reduction)  # fmt: skip
    named("multi_margin_loss", X, classes(4, 3), reduction=reduction)
    named("multi_margin_loss", X, classes(4, 3), 2, 0.8, fixed(positive(4)), reduction=reduction)
    named("multi_margin_loss", A(4), classes(4), reduction=reduction)
    named("multilabel_margin_loss", X, np.array([[3, 0, -1, 1], [0, -1, 2, 3], [1, 2, 3, 0]]),
          reduction=reduction)  # fmt: skip
    named("multilabel_margin_loss", A(4), np.array([2, 0, -1, 1]), reduction=reduction)
    for scores, targets in (
        (A(3, 4), classes(4, 3)),
        (A(4), classes(4)),
        (A(2, 4, 3), classes(4, 2, 3)),
        (A(2, 4, 3, 2), classes(4, 2, 3, 2)),
    ):
        partly = targets.copy() if targets.ndim else targets
        if targets.ndim:
            partly.flat[0] = -100
        for name in ("nll_loss", "cross_entropy"):
            named(name, scores, targets, reduction=reduction)
            named(name, scores, partly, fixed(positive(4)), reduction=reduction)
            named(name, scores, targets, ignore_index=1, reduction=reduction)
        for smoothing in (0.0, 0.3):
            named("cross_entropy", scores, partly, fixed(positive(4)), reduction=reduction,
                  label_smoothing=smoothing)  # fmt: skip
            named("cross_entropy", scores, partly, reduction=reduction, label_smoothing=smoothing)
            named("cross_entropy", scores, positive(*scores.shape), fixed(positive(4)),
                  reduction=reduction, label_smoothing=smoothing)  # fmt: skip
    for together in (True, False):
        case(
            "ctc_loss",
            lambda ns, f, x, t, r=reduction, together=together: f.ctc_loss(
                f.log_softmax(x, 2), t if together else t.flatten()[:8], ns.tensor([7, 6, 7, 2]),
                ns.tensor([3, 2, 0, 3]), reduction=r, zero_infinity=True,
            ),
            A(7, 4, 5), 1 + classes(4, 4, 3),
        )  # fmt: skip
case("ctc_loss", lambda ns, f, x, t: f.ctc_loss(f.log_softmax(x, 1), t, (7,), (3,), blank=2),
     A(7, 5), np.array([1, 0, 3]))  # fmt: skip
named("kl_div", X, positive(3, 4), reduction="batchmean")
named("cosine_embedding_loss", A(4), A(4, seed=1), fixed(np.array(-1.0)), margin=-0.9)
named("binary_cross_entropy", np.array([0.0, 1.0, 0.0, 1.0]), fixed(np.array([0.0, 0.0, 1.0, 1.0])))
named("cross_entropy", A(3, 4) * 1000, classes(4, 3))
named("nll_loss", fixed(A(2, 3)), fixed(np.array([-100, -100])))
named("mse_loss", X, Y, size_average=False)
named("l1_loss", X, Y, reduce=False)
named("mse_loss", A(3, 4), A(4, seed=1))

# -- attention ----------------------------------------------------------------------------------

QKV = (A(2, 3, 4), A(2, 5, 4, seed=1), A(2, 5, 6, seed=2))
named("scaled_dot_product_attention", *QKV)
named("scaled_dot_product_attention", A(3, 4), A(5, 4, seed=1), A(5, 2, seed=2))
named("scaled_dot_product_attention", *QKV, is_causal=True)
named("scaled_dot_product_attention", *QKV, scale=0.3)
named("scaled_dot_product_attention", *QKV, fixed(A(3, 5, seed=4) > 0))
named("scaled_dot_product_attention", *QKV, fixed(A(2, 3, 5, seed=4)))
named("scaled_dot_product_attention", *QKV, fixed(np.arange(15).reshape(3, 5) // 5 != 1))
case(
    "scaled_dot_product_attention",
    lambda ns, f, q, k, v: f.scaled_dot_product_attention(q, k, v, enable_gqa=True),
    A(2, 6, 3, 4), A(2, 2, 5, 4, seed=1), A(2, 2, 5, 4, seed=2),
)  # fmt: skip
case(
    "scaled_dot_product_attention",
    lambda ns, f, q, k, v: f.scaled_dot_product_attention(
        q, k, v, is_causal=True, enable_gqa=True
    ),
    A(1, 4, 3, 4), A(1, 2, 3, 4, seed=1), A(1, 2, 3, 4, seed=2),
)  # fmt: skip

# -- tables -------------------------------------------------------------------------------------

named("embedding", classes(5, 2, 3), A(5, 4))
named("embedding", classes(5, 2, 3), A(5, 4), padding_idx=-2)
named("embedding", classes(5, 7), A(5, 4), scale_grad_by_freq=True)
case("embedding", lambda ns, f, i, w: f.embedding(i, w * 1, max_norm=1.0), classes(5, 3), A(5, 4))
for mode in ("sum", "mean", "max"):
    named("embedding_bag", classes(5, 2, 3), A(5, 4), mode=mode)
    named("embedding_bag", classes(5, 7), A(5, 4), np.array([0, 2, 2, 5]), mode=mode)
    named("embedding_bag", classes(5, 7), A(5, 4), np.array([0, 3, 7]), mode=mode,
          include_last_offset=True, padding_idx=1)  # fmt: skip
case(
    "embedding_bag",
    lambda ns, f, i, w, p: f.embedding_bag(i, w, mode="sum", per_sample_weights=p),
    classes(5, 2, 3), A(5, 4), A(2, 3),
)  # fmt: skip
named("one_hot", classes(4, 3))
named("one_hot", classes(4, 2, 3), num_classes=6)

# -- images -------------------------------------------------------------------------------------

for mode, shape in (
    ("nearest", (2, 3, 5)), ("nearest", (1, 2, 4, 5)), ("nearest", (1, 2, 3, 2, 3)),
    ("nearest-exact", (1, 2, 4, 5)), ("area", (1, 2, 4, 5)), ("linear", (2, 3, 5)),
    ("bilinear", (1, 2, 4, 5)), ("bicubic", (1, 2, 4, 5)), ("trilinear", (1, 1, 3, 2, 3)),
):  # fmt: skip
    rank = len(shape) - 2
    for size in (7, 3, 1):
        named("interpolate", A(*shape), size=(size,) * rank, mode=mode)
    for factor in (2.0, 0.5, 1.7):
        named("interpolate", A(*shape), scale_factor=factor, mode=mode)
        named("interpolate", A(*shape), scale_factor=factor, mode=mode,
              recompute_scale_factor=True)  # fmt: skip
    if mode in ("linear", "bilinear", "bicubic", "trilinear"):
        for size in (7, 3, 1):
            named("interpolate", A(*shape), size=(size,) * rank, mode=mode, align_corners=True)

for align in (True, False):
    named("affine_grid", A(2, 2, 3), (2, 1, 3, 4), align_corners=align)
    named("affine_grid", A(2, 3, 4), (2, 1, 3, 1, 2), align_corners=align)
    for padding_mode in ("zeros", "border", "reflection"):
        for mode in ("bilinear", "nearest", "bicubic"):
            named("grid_sample", A(2, 3, 4, 5), A(2, 3, 2, 2, seed=1) * 1.2, mode=mode,
                  padding_mode=padding_mode, align_corners=align)  # fmt: skip
        named("grid_sample", A(1, 2, 3, 4, 2), A(1, 2, 3, 2, 3, seed=1), align_corners=align,
              padding_mode=padding_mode)  # fmt: skip
named("pad", A(2, 3, 4), (1, 2, 0, 1))
named("pixel_shuffle", A(1, 8, 2, 3), 2)

# PyTorch has a constant of these in single precision.
LOOSE = {"hardsigmoid": 1e-7, "celu": 1e-7, "binary_cross_entropy": 1e-8}


@pytest.mark.parametrize("name", sorted(CASES))
def test_matches_pytorch(name: str, torch: ModuleType) -> None:
    functional = torch.nn.functional
    tolerance = LOOSE.get(name, 1e-9)
    close = functools.partial(
        np.testing.assert_allclose, rtol=tolerance, atol=tolerance, equal_nan=True
    )
    for number, (call, arguments) in enumerate(CASES[name]):
        expected = values_and_gradients(torch, functional, call, arguments)
        found = values_and_gradients(evergrad, F, call, arguments)
        for kind, ours, theirs in zip(("value", "gradient"), found, expected, strict=True):
            for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
                label = f"{name}, call {number}: {kind} {i}"
                assert a.dtype == b.dtype and a.shape == b.shape, label
                close(a, b, err_msg=label)


# -- random functions: the same numbers for the same seed ---------------------------------------

RANDOM: dict[str, Call] = {
    "dropout": lambda f, x: f.dropout(x, 0.3),
    "dropout, all": lambda f, x: f.dropout(x, 1.0),
    "dropout, none": lambda f, x: f.dropout(x, 0.0),
    "dropout, not training": lambda f, x: f.dropout(x, 0.3, training=False),
    "dropout, in place": lambda f, x: f.dropout(x * 1, 0.3, inplace=True),
    "dropout1d": lambda f, x: f.dropout1d(x, 0.3),
    "dropout1d, one sample": lambda f, x: f.dropout1d(x[0], 0.3),
    "dropout2d": lambda f, x: f.dropout2d(x[..., None], 0.3),
    "dropout3d": lambda f, x: f.dropout3d(x[..., None, None], 0.3),
    "dropout3d, one sample": lambda f, x: f.dropout3d(x[..., None], 0.3),
    "alpha_dropout": lambda f, x: f.alpha_dropout(x, 0.3, training=True),
    "feature_alpha_dropout": lambda f, x: f.feature_alpha_dropout(x, 0.3, training=True),
    "gumbel_softmax": lambda f, x: f.gumbel_softmax(x, tau=0.7),
    "gumbel_softmax, hard": lambda f, x: f.gumbel_softmax(x, hard=True),
    "attention with dropout": lambda f, x: f.scaled_dot_product_attention(x, x, x, dropout_p=0.3),
}


@pytest.mark.parametrize("name", RANDOM)
def test_draws_the_numbers_of_pytorch(name: str, torch: ModuleType) -> None:
    def call(ns: Any) -> Any:
        x = ns.tensor(A(2, 6, 4), requires_grad=True)
        result = RANDOM[name](ns.nn.functional, x)
        (result * result).sum().backward()
        return result, x.grad

    assert_same(torch, call, tolerance=1e-6)


# -- 16-bit floats ------------------------------------------------------------------------------

WIDENED: dict[str, Call] = {
    "softmax": lambda f, x: f.softmax(x, -1),
    "log_softmax": lambda f, x: f.log_softmax(x, -1),
    "layer_norm": lambda f, x: f.layer_norm(x, (x.shape[-1],)),
    "group_norm": lambda f, x: f.group_norm(x, 2),
    "attention": lambda f, x: f.scaled_dot_product_attention(x, x, x),
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", WIDENED)
def test_16_bit_floats_round_once(name: str, dtype: str, torch: ModuleType) -> None:
    def call(ns: Any) -> Any:
        x = ns.tensor(A(2, 4, 33) * 3).to(getattr(ns, dtype))
        return WIDENED[name](ns.nn.functional, x)

    def exact(ns: Any) -> Any:
        x = ns.tensor(A(2, 4, 33) * 3).to(getattr(ns, dtype))
        return WIDENED[name](ns.nn.functional, x.to(ns.float64))

    found = call(evergrad)
    assert found.dtype.name == dtype and str(call(torch).dtype) == f"torch.{dtype}"
    ulp = 2.0 ** (-8 if dtype == "bfloat16" else -11)
    np.testing.assert_allclose(
        found.to(evergrad.float64).numpy(), exact(torch).numpy(), rtol=1.01 * ulp, atol=1e-7
    )


# -- errors -------------------------------------------------------------------------------------

ERRORS: dict[str, Callable[[Any, Any], Any]] = {
    "matmul sizes": lambda ns, f: ns.zeros(3, 4) @ ns.zeros(5, 6),
    "matmul types": lambda ns, f: ns.zeros(2, 2) @ ns.zeros(2, 2, dtype=ns.float64),
    "matmul of booleans": lambda ns, f: ns.zeros(2, 2).bool() @ ns.zeros(2, 2).bool(),
    "matmul scalar": lambda ns, f: ns.zeros(()) @ ns.zeros(2),
    "matmul number": lambda ns, f: ns.zeros(2, 2) @ 2,
    "bmm stacks": lambda ns, f: ns.bmm(ns.zeros(2, 3, 4), ns.zeros(3, 4, 4)),
    "mv rank": lambda ns, f: ns.mv(ns.zeros(2), ns.zeros(2)),
    "dot rank": lambda ns, f: ns.dot(ns.zeros(2, 3), ns.zeros(2)),
    "addmm addend": lambda ns, f: ns.addmm(ns.zeros(4), ns.zeros(2, 3), ns.zeros(3, 5)),
    "tensordot sizes": lambda ns, f: ns.tensordot(ns.zeros(2, 3), ns.zeros(3, 2), 2),
    "cross length": lambda ns, f: ns.cross(ns.zeros(3, 2), ns.zeros(3, 2), dim=1),
    "linear sizes": lambda ns, f: f.linear(ns.zeros(2, 3), ns.zeros(4, 2)),
    "einsum operands": lambda ns, f: ns.einsum("ij,jk", ns.zeros(2, 3)),
    "einsum subscripts": lambda ns, f: ns.einsum("i1", ns.zeros(2, 3)),
    "einsum sizes": lambda ns, f: ns.einsum("ij,jk", ns.zeros(2, 3), ns.zeros(4, 2)),
    "einsum output": lambda ns, f: ns.einsum("ij->ik", ns.zeros(2, 3)),
    "conv channels": lambda ns, f: f.conv2d(ns.zeros(1, 2, 5, 5), ns.zeros(4, 3, 3, 3)),
    "conv kernel": lambda ns, f: f.conv2d(ns.zeros(1, 3, 2, 2), ns.zeros(4, 3, 3, 3)),
    "conv rank": lambda ns, f: f.conv2d(ns.zeros(3, 2), ns.zeros(4, 3, 3, 3)),
    "conv same": lambda ns, f: f.conv1d(
        ns.zeros(1, 3, 5), ns.zeros(2, 3, 3), padding="same", stride=2
    ),
    "max_pool padding": lambda ns, f: f.max_pool2d(ns.zeros(1, 1, 4, 4), 3, padding=2),
    "max_pool size": lambda ns, f: f.max_pool2d(ns.zeros(1, 1, 2, 2), 3),
    "fold blocks": lambda ns, f: f.fold(ns.zeros(1, 8, 8), (4, 4), 2),
    "softmax of integers": lambda ns, f: f.softmax(ns.zeros(2, 2, dtype=ns.int64), 1),
    "softmax dim": lambda ns, f: f.softmax(ns.zeros(2), 3),
    "gelu approximate": lambda ns, f: f.gelu(ns.zeros(2), approximate="x"),
    "glu odd": lambda ns, f: f.glu(ns.zeros(3)),
    "glu scalar": lambda ns, f: f.glu(ns.zeros(())),
    "prelu channels": lambda ns, f: f.prelu(ns.zeros(2, 3), ns.zeros(2)),
    "prelu weight rank": lambda ns, f: f.prelu(ns.zeros(2, 3), ns.zeros(3, 1)),
    "prelu types": lambda ns, f: f.prelu(ns.zeros(2, 3), ns.zeros(3, dtype=ns.float64)),
    "hardtanh bounds": lambda ns, f: f.hardtanh(ns.zeros(2), 2, 1),
    "softshrink negative": lambda ns, f: f.softshrink(ns.zeros(2), -1),
    "celu alpha": lambda ns, f: f.celu(ns.zeros(2), 0.0),
    "elu of integers": lambda ns, f: f.elu(ns.zeros(2, dtype=ns.int64)),
    "dropout probability": lambda ns, f: f.dropout(ns.zeros(2), 1.5),
    "dropout1d rank": lambda ns, f: f.dropout1d(ns.zeros(2), 0.5),
    "layer_norm shape": lambda ns, f: f.layer_norm(ns.zeros(2, 3), (4,)),
    "layer_norm weight": lambda ns, f: f.layer_norm(ns.zeros(2, 3), (3,), ns.zeros(4)),
    "group_norm groups": lambda ns, f: f.group_norm(ns.zeros(2, 3), 2),
    "batch_norm of one": lambda ns, f: f.batch_norm(ns.zeros(1, 3), None, None, training=True),
    "batch_norm without statistics": lambda ns, f: f.batch_norm(ns.zeros(2, 3), None, None),
    "instance_norm of one": lambda ns, f: f.instance_norm(ns.zeros(2, 3, 1)),
    "mse_loss reduction": lambda ns, f: f.mse_loss(ns.zeros(2), ns.zeros(2), reduction="x"),
    "huber_loss delta": lambda ns, f: f.huber_loss(ns.zeros(2), ns.zeros(2), delta=0),
    "bce range": lambda ns, f: f.binary_cross_entropy(ns.ones(2) * 1.5, ns.ones(2)),
    "bce sizes": lambda ns, f: f.binary_cross_entropy(ns.zeros(2, 1), ns.ones(2)),
    "bce logits sizes": lambda ns, f: f.binary_cross_entropy_with_logits(ns.zeros(2), ns.ones(3)),
    "nll target range": lambda ns, f: f.nll_loss(ns.zeros(2, 3), ns.tensor([0, 5])),
    "nll batch": lambda ns, f: f.nll_loss(ns.zeros(2, 3), ns.tensor([0, 1, 2])),
    "nll target type": lambda ns, f: f.nll_loss(ns.zeros(2, 3), ns.zeros(2)),
    "nll target rank": lambda ns, f: f.nll_loss(ns.zeros(2, 3), ns.tensor([[0], [1]])),
    "nll weight": lambda ns, f: f.nll_loss(ns.zeros(2, 3), ns.tensor([0, 1]), ns.ones(2)),
    "cross_entropy smoothing": lambda ns, f: f.cross_entropy(
        ns.zeros(2, 3), ns.tensor([0, 1]), label_smoothing=2.0
    ),
    "cross_entropy of integers": lambda ns, f: f.cross_entropy(
        ns.zeros(2, 3), ns.ones(2, 3, dtype=ns.int64)
    ),
    "multi_margin p": lambda ns, f: f.multi_margin_loss(ns.zeros(2, 3), ns.tensor([0, 1]), p=3),
    "multi_margin range": lambda ns, f: f.multi_margin_loss(ns.zeros(2, 3), ns.tensor([0, 5])),
    "triplet margin": lambda ns, f: f.triplet_margin_loss(
        ns.ones(2, 3), ns.ones(2, 3), ns.ones(2, 3), margin=-1
    ),
    "gaussian variance": lambda ns, f: f.gaussian_nll_loss(ns.zeros(2), ns.ones(2), -ns.ones(2)),
    "attention rank": lambda ns, f: f.scaled_dot_product_attention(*[ns.zeros(4)] * 3),
    "attention types": lambda ns, f: f.scaled_dot_product_attention(
        ns.zeros(2, 4), ns.zeros(2, 4, dtype=ns.float64), ns.zeros(2, 4)
    ),
    "attention heads": lambda ns, f: f.scaled_dot_product_attention(
        ns.zeros(1, 8, 3, 4), ns.zeros(1, 3, 5, 4), ns.zeros(1, 3, 5, 4), enable_gqa=True
    ),
    "interpolate without size": lambda ns, f: f.interpolate(ns.zeros(1, 1, 4)),
    "interpolate to nothing": lambda ns, f: f.interpolate(ns.zeros(1, 1, 4), 0),
    "interpolate below nothing": lambda ns, f: f.interpolate(ns.zeros(1, 1, 4), -1, mode="linear"),
    "interpolate to less than one": lambda ns, f: f.interpolate(
        ns.zeros(1, 1, 4), scale_factor=0.1
    ),
    "interpolate to a fraction": lambda ns, f: f.interpolate(ns.zeros(1, 1, 4), 1.5),
    "interpolate nothing": lambda ns, f: f.interpolate(ns.zeros(1, 1, 0), 3),
    "interpolate integers": lambda ns, f: f.interpolate(
        ns.zeros(1, 1, 4, dtype=ns.int64), 3, mode="linear"
    ),
    "adaptive pool below nothing": lambda ns, f: f.adaptive_avg_pool1d(ns.zeros(1, 1, 4), -1),
    "adaptive max pool below nothing": lambda ns, f: f.adaptive_max_pool1d(ns.zeros(1, 1, 4), -1),
    "adaptive pool to a fraction": lambda ns, f: f.adaptive_avg_pool2d(
        ns.zeros(1, 1, 4, 4), (2, 2.5)
    ),
    "interpolate rank": lambda ns, f: f.interpolate(ns.zeros(1, 1, 4), 3, mode="bilinear"),
    "interpolate corners": lambda ns, f: f.interpolate(ns.zeros(1, 1, 4), 3, align_corners=True),
    "grid_sample mode": lambda ns, f: f.grid_sample(
        ns.zeros(1, 1, 2, 2), ns.zeros(1, 1, 1, 2), mode="x", align_corners=True
    ),
    "grid_sample batch": lambda ns, f: f.grid_sample(
        ns.zeros(1, 1, 2, 2), ns.zeros(2, 1, 1, 2), align_corners=True
    ),
    "binary_cross_entropy target": lambda ns, f: f.binary_cross_entropy(
        ns.full((2,), 0.5), ns.full((2,), 2.0)
    ),
    "linear of a list": lambda ns, f: f.linear([1.0, 2.0], ns.zeros(3, 2)),
    "embedding_bag beyond the end": lambda ns, f: f.embedding_bag(
        ns.tensor([0, 1]), ns.zeros(3, 2), ns.tensor([0, 5])
    ),
    "embedding_bag offsets": lambda ns, f: f.embedding_bag(ns.tensor([1, 2]), ns.zeros(3, 2)),
    "cdist columns": lambda ns, f: ns.cdist(ns.zeros(2, 3), ns.zeros(4, 2)),
    "cdist p": lambda ns, f: ns.cdist(ns.zeros(2, 3), ns.zeros(4, 3), p=-1),
}


@pytest.mark.parametrize("name", ERRORS)
def test_refuses_what_pytorch_refuses(name: str, torch: ModuleType) -> None:
    with pytest.raises((RuntimeError, ValueError, IndexError, TypeError)):
        ERRORS[name](torch, torch.nn.functional)
    assert_same(torch, lambda ns: ERRORS[name](ns, ns.nn.functional))


def test_embedding_bag_refuses_offsets_that_decrease() -> None:
    """PyTorch raises only in float32 and with more than one thread."""
    with pytest.raises((RuntimeError, ValueError)):
        F.embedding_bag(
            evergrad.tensor([0, 1, 2]), evergrad.zeros(3, 2), evergrad.tensor([0, 2, 1])
        )
