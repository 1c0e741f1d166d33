"""Compiled convolutions: values and gradients as in eager evaluation, without NumPy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import evergrad as eg
import evergrad.nn.functional as F
from evergrad import nn
from evergrad.compiler.kernels.conv import select

from .convolutions import (
    TOLERANCES,
    check,
    kernels,
    labels,
    normal,
    numpy_calls,
    scaled,
    with_gradients,
)
from .steps import assert_alike

# -- convolutions -------------------------------------------------------------------------------

# Samples, groups, channels and outputs of a group; size; kernel; stride, padding, dilation.
# Kernels are built for shapes of register tiles; both element types share their builders.
CONVOLUTIONS = [
    ((2, 1, 1, 6), (28, 28), (5, 5), 1, 2, 1),
    ((2, 1, 6, 16), (14, 14), (5, 5), 1, 0, 1),
    ((2, 1, 32, 40), (9, 11), (3, 3), 1, 1, 1),
    ((1, 1, 16, 24), (12, 33), (3, 3), 2, 1, 1),
    ((3, 1, 3, 8), (17, 17), (7, 7), 2, 3, 1),
    ((2, 1, 5, 7), (10, 12), (1, 1), 1, 0, 1),
    ((2, 3, 2, 5), (6, 5), (1, 1), 1, 0, 1),
    ((2, 1, 32, 8), (10, 12), (1, 1), 2, 0, 1),
    ((2, 1, 4, 3), (11, 13), (3, 2), (3, 1), (0, 1), (1, 2)),
    ((1, 1, 17, 9), (12, 20), (2, 3), 1, (1, 4), (2, 3)),
    ((2, 6, 1, 1), (10, 35), (3, 3), 1, 1, 1),
    ((2, 4, 1, 2), (9, 9), (3, 3), 2, 1, 1),
    ((4, 1, 20, 20), (3, 3), (3, 3), 1, 2, 1),
    ((1, 1, 1, 1), (1, 1), (1, 3), 1, (0, 1), 1),
    ((1, 1, 130, 2), (40, 60), (3, 1), 1, 0, 1),
    ((5, 1, 130, 150), (4, 5), (3, 3), 1, 1, 1),
    ((3, 1, 128, 40), (9, 9), (1, 1), 2, 0, 1),
    ((3, 1, 9, 20), (24, 30), (1, 1), 1, 0, 1),
]


@pytest.mark.parametrize(
    "case, dtype",
    [(c, eg.float32) for c in CONVOLUTIONS] + [(c, eg.float64) for c in CONVOLUTIONS[2::5]],
    ids=str,
)
def test_convolution(case: Any, dtype: Any) -> None:
    (samples, groups, channels, outputs), size, kernel, stride, padding, dilation = case
    x = normal((samples, groups * channels, *size), dtype)
    w = normal((groups * outputs, channels, *kernel), dtype, 1)
    check(lambda x, w: F.conv2d(x, w, None, stride, padding, dilation, groups), x, w)


@pytest.mark.usefixtures("made_anew")
@pytest.mark.parametrize("algorithm", ["direct", "output_lanes"])
@pytest.mark.parametrize("case, dtype", [
    (((5, 2, 3, 70), (5, 7), (3, 2), 1, 1, 1), eg.float32),
    (((2, 1, 5, 19), (9, 18), (3, 3), (1, 2), (2, 1), 1), eg.float64),
    (((3, 1, 40, 8), (70, 33), (2, 3), (2, 1), 1, (1, 2)), eg.float32),
])  # fmt: skip
def test_pixel_and_output_lanes(monkeypatch: Any, algorithm: str, case: Any, dtype: Any) -> None:
    monkeypatch.setattr(select, "_cheapest", lambda *given: algorithm)
    test_convolution(case, dtype)


# -- batch lanes --------------------------------------------------------------------------------

BATCHES = [
    ((64, 1, 6, 16), (14, 14), (5, 5), 1, 0, 1),
    ((70, 1, 3, 26), (7, 5), (3, 3), 1, 2, 1),
    ((33, 2, 5, 3), (6, 9), (3, 2), 1, (1, 4), (2, 1)),
    ((17, 1, 7, 1), (5, 5), (4, 2), 1, (0, 3), (1, 3)),
    ((3, 1, 40, 2), (8, 11), (3, 3), (2, 3), 1, 1),
    ((40, 3, 1, 1), (3, 1), (5, 1), 1, (2, 0), 1),
    ((18, 1, 5, 7), (4, 6), (1, 1), 1, 0, 1),
    ((18, 1, 4, 3), (6, 5), (1, 1), 2, 0, 1),
]


@pytest.mark.usefixtures("made_anew")
@pytest.mark.parametrize(
    "case, dtype",
    [(c, eg.float32) for c in BATCHES] + [(c, eg.float64) for c in BATCHES[1::2]],
    ids=str,
)
def test_batch_lanes(monkeypatch: Any, case: Any, dtype: Any) -> None:
    """Also with partial registers, and with taps that read only padding."""
    use_batch_lanes(monkeypatch)
    test_convolution(case, dtype)


def use_batch_lanes(monkeypatch: Any) -> None:
    """Use batch lanes for all convolutions that support them."""
    for name in ("_cheapest", "_cheapest_weight_grad"):
        choose = lambda *given: "batch_lanes" if "batch_lanes" in given[-1] else given[-1][0]
        monkeypatch.setattr(select, name, choose)


@pytest.mark.usefixtures("made_anew")
@pytest.mark.parametrize("take", [
    lambda x: x[::2], lambda x: x[:, 1:4], lambda x: x.transpose(0, 1), lambda x: x[..., 1:],
    lambda x: x[:1].expand(20, 5, 9, 8),
], ids=["every second", "channels", "samples inside", "a part", "one for all"])  # fmt: skip
def test_batch_lanes_of_views(monkeypatch: Any, take: Callable[[Any], Any]) -> None:
    use_batch_lanes(monkeypatch)
    x = normal((20, 5, 9, 8), eg.float32)
    w = normal((4, take(x).shape[1], 3, 3), eg.float32, 1)
    check(lambda x, w: F.conv2d(take(x), w, padding=1), x, w, beside=("pad_slice",))


def test_selection_of_batch_lanes() -> None:
    """Large batches of small images with few channels; not a single one, or large ones."""
    found = {}
    for samples, size in ((64, 14), (1, 14), (16, 40)):
        x, w = normal((samples, 6, size, size), eg.float32), normal((16, 6, 5, 5), eg.float32, 1)
        compiled = eg.compile(with_gradients(F.conv2d))
        compiled(x, w)
        found[samples] = [name for name in kernels(compiled) if "conv_batch_lanes" in name]
    assert len(found[64]) == 3
    assert found[1] == found[16] == []


# -- Winograd -----------------------------------------------------------------------------------

WINOGRAD_CASES = [
    ((2, 1, 3, 5), (6, 6), (3, 3), 1, 1, 1),
    ((1, 1, 1, 1), (1, 1), (3, 3), 1, 1, 1),
    ((3, 1, 5, 9), (7, 40), (3, 3), 1, (0, 2), 1),
    ((2, 3, 4, 17), (9, 5), (3, 3), 1, (2, 0), 1),
    ((9, 1, 33, 130), (4, 5), (3, 3), 1, 1, 1),
    ((1, 1, 40, 8), (61, 35), (3, 3), 1, 1, 1),
]


@pytest.mark.usefixtures("made_anew")
@pytest.mark.parametrize("case", WINOGRAD_CASES, ids=str)
def test_winograd(monkeypatch: Any, case: Any) -> None:
    for name in ("_cheapest", "_cheapest_weight_grad"):
        monkeypatch.setattr(select, name, lambda *given: "winograd")
    test_convolution(case, eg.float32)


def results_of(algorithms: tuple[str, str], monkeypatch: Any, x: Any, w: Any) -> list[Any]:
    """The result of a convolution and its gradients, computed by these algorithms."""
    for name, algorithm in zip(("_cheapest", "_cheapest_weight_grad"), algorithms, strict=True):
        monkeypatch.setattr(select, name, lambda *given, algorithm=algorithm: algorithm)
    found = eg.compile(with_gradients(partial(F.conv2d, padding=1)))(x, w)
    return [f.array() for f in found]


DIRECT, WINOGRAD = ("direct", "im2col"), ("winograd", "winograd")


@pytest.mark.usefixtures("made_anew")
def test_accuracy_of_winograd(monkeypatch: Any) -> None:
    """Results and gradients are about as accurate as those of direct convolution."""
    x, w = normal((2, 64, 18, 18), eg.float32), normal((64, 64, 3, 3), eg.float32, 1)
    exact = with_gradients(partial(F.conv2d, padding=1))(x.double(), w.double())
    errors = {
        algorithms: [
            float(np.sqrt(np.square(found - true.array()).mean()))
            for found, true in zip(results_of(algorithms, monkeypatch, x, w), exact, strict=True)
        ]
        for algorithms in (DIRECT, WINOGRAD)
    }
    for winograd, direct in zip(errors[WINOGRAD], errors[DIRECT], strict=True):
        assert winograd < 2 * direct


@pytest.mark.usefixtures("made_anew")
def test_winograd_of_integers_is_exact(monkeypatch: Any) -> None:
    numbers = np.random.default_rng(5)
    x = eg.tensor(numbers.integers(-8, 9, (2, 5, 9, 10)).astype(np.float32))
    w = eg.tensor(numbers.integers(-8, 9, (6, 5, 3, 3)).astype(np.float32))
    found = [results_of(a, monkeypatch, x, w)[0] for a in (WINOGRAD, DIRECT)]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("size, is_chosen", [(3, True), (1, False), (5, False)])
def test_selection_of_winograd(size: int, is_chosen: bool) -> None:
    x, w = normal((4, 64, 16, 16), eg.float32), normal((64, 64, size, size), eg.float32, 1)
    compiled = eg.compile(with_gradients(partial(F.conv2d, padding=size // 2)))
    compiled(x, w)
    found = [name for name in kernels(compiled) if "winograd" in name]
    assert any("weight_grad" in name for name in found) == is_chosen
    assert any("weight_grad" not in name for name in found) == is_chosen


@pytest.mark.parametrize("take", [
    lambda x: x.transpose(1, 3), lambda x: x[..., ::2], lambda x: x[:, :, 3:29, 5:36],
    lambda x: x[:1].expand(3, 40, 40, 40),
], ids=["channels last", "every second column", "a part", "one for all"])  # fmt: skip
def test_images_that_are_not_contiguous(take: Callable[[Any], Any]) -> None:
    x, w = normal((2, 40, 40, 40), eg.float32), normal((48, 40, 3, 3), eg.float32, 1)
    check(lambda x, w: F.conv2d(take(x), w), x, w, beside=("pad_slice",))


# -- epilogues ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("made_anew")
@pytest.mark.parametrize("algorithm", ["direct", "output_lanes", "winograd", "batch_lanes"])
@pytest.mark.parametrize("shape, weight, groups", [
    ((2, 6, 13, 9), (20, 3, 3, 3), 2), ((3, 40, 9, 9), (33, 40, 3, 3), 1),
])  # fmt: skip
def test_bias_epilogue(
    monkeypatch: Any, algorithm: str, shape: Any, weight: Any, groups: int
) -> None:
    """Bitwise equal to a separate addition."""
    monkeypatch.setattr(select, "_cheapest", lambda *given: algorithm)
    x, w = normal(shape, eg.float32), normal(weight, eg.float32, 1)
    bias = normal(weight[:1], eg.float32, 2)

    def both(x: Any, w: Any, bias: Any) -> Any:
        plain = F.conv2d(x, w, None, 1, 1, 1, groups)
        return plain, plain + bias[:, None, None]

    alone = eg.compile(lambda x, w, bias: F.conv2d(x, w, bias, 1, 1, 1, groups))
    np.testing.assert_array_equal(
        alone(x, w, bias).array(), eg.compile(both)(x, w, bias)[1].array()
    )
    between = {
        "batch_lanes": ["pack batch lanes"],
        "winograd": ["conv measure", "conv measure", "conv pack"],
    }
    assert labels(alone) == ["conv pack", *between.get(algorithm, []), "conv+add"]


@pytest.mark.usefixtures("made_anew")
@pytest.mark.parametrize("algorithm", ["direct", "output_lanes", "winograd", "batch_lanes"])
@pytest.mark.parametrize("dtype", list(TOLERANCES), ids=str)
def test_batch_norm_epilogue(monkeypatch: Any, algorithm: str, dtype: Any) -> None:
    """Batch norm outside of training and relu, as in eager evaluation; also of NaN."""
    if algorithm == "winograd" and dtype is not eg.float32:
        algorithm = "direct"
    monkeypatch.setattr(select, "_cheapest", lambda *given: algorithm)
    conv, norm = nn.Conv2d(6, 20, 3, padding=1, groups=2).to(dtype), nn.BatchNorm2d(20).to(dtype)
    norm.train()(normal((9, 20, 4, 4), dtype, 2) * 3 + 1)
    norm.eval()
    x = normal((5, 6, 9, 11), dtype)
    x[1, 2, 3, 4] = float("nan")

    def function(x: Any) -> Any:
        return norm(conv(x)).relu()

    with eg.no_grad():
        compiled = eg.compile(function)
        found, expected = compiled(x).array(), function(x).array()
        assert "conv+add+sub+mul+add+relu" in labels(compiled)
        if algorithm != "winograd":  # which spreads NaN over spatial tiles
            np.testing.assert_allclose(found, expected, TOLERANCES[dtype], TOLERANCES[dtype])
        x[1, 2, 3, 4] = 0
        found, expected = compiled(x).array(), function(x).array()
    np.testing.assert_allclose(found, expected, TOLERANCES[dtype], TOLERANCES[dtype])
    assert (found == 0).any()


ACTIVATIONS = {
    "leaky_relu": F.leaky_relu, "hardswish": F.hardswish, "hardsigmoid": F.hardsigmoid,
    "hardtanh": F.relu6, "clamp": lambda y: y.clamp(-0.5, 2), "clamp_min": lambda y: y.clamp(min=1),
    "clamp_max": lambda y: y.clamp(max=1), "sub": lambda y: 1 - y, "abs": eg.abs,
    "square+mul+add": lambda y: 1 + 3 * y.square(),
    "neg+maximum": lambda y: eg.maximum(y, -y), "neg+minimum": lambda y: eg.minimum(-y, y),
    "div": lambda y: y / 3,
}  # fmt: skip
EXPENSIVE_ACTIVATIONS = {
    "sigmoid+mul": F.silu, "tanh": eg.tanh, "ndtr+mul": F.gelu, "elu": F.elu,
    "softplus": F.softplus, "softplus+tanh+mul": F.mish, "erf": eg.erf,
    "exp": lambda y: (y / 8).exp(), "expm1": lambda y: (y / 8).expm1(),
    "mul+mul+mul+add+mul+tanh+add+mul+mul": lambda y: F.gelu(y, approximate="tanh"),
}  # fmt: skip


@pytest.mark.usefixtures("made_anew")
@pytest.mark.parametrize("algorithm", ["direct", "output_lanes", "winograd", "batch_lanes"])
@pytest.mark.parametrize("name", [*ACTIVATIONS, *EXPENSIVE_ACTIVATIONS])
def test_activation_epilogue(monkeypatch: Any, algorithm: str, name: str) -> None:
    monkeypatch.setattr(select, "_cheapest", lambda *given: algorithm)
    activation = {**ACTIVATIONS, **EXPENSIVE_ACTIVATIONS}[name]
    x, w = normal((3, 4, 5, 50), eg.float32), normal((6, 4, 3, 3), eg.float32, 1)
    bias = normal((6,), eg.float32, 2)

    def function(x: Any) -> Any:
        return activation(F.conv2d(x, w, bias, padding=1))

    compiled = eg.compile(function)
    assert_alike(*scaled([compiled(x)], [function(x)]), TOLERANCES[eg.float32])
    assert labels(compiled)[-1].startswith("conv+add+")
    assert labels(compiled)[-1].endswith(name)


@pytest.mark.parametrize("name", EXPENSIVE_ACTIVATIONS)
@pytest.mark.parametrize("columns, dtype", [(12, eg.float32), (50, eg.float64)], ids=str)
def test_expensive_activations_of_narrow_images_and_of_doubles_are_loops(
    name: str, columns: int, dtype: Any
) -> None:
    x, w = normal((3, 4, 5, columns), dtype), normal((6, 4, 3, 3), dtype, 1)

    def function(x: Any) -> Any:
        return EXPENSIVE_ACTIVATIONS[name](F.conv2d(x, w, padding=1))

    compiled = eg.compile(function)
    assert_alike(*scaled([compiled(x)], [function(x)]), TOLERANCES[dtype])
    assert not labels(compiled)[-1].startswith("conv")


def test_an_activation_whose_gradient_is_wanted() -> None:
    """Its operand is stored, since backward reads it."""
    x, w = normal((3, 4, 5, 50), eg.float32), normal((6, 4, 3, 3), eg.float32, 1)
    for activation in (F.silu, F.hardswish, F.leaky_relu, F.gelu):
        check(lambda x, w, f=activation: f(F.conv2d(x, w, padding=1)), x, w)


def test_intermediates_with_other_users_are_stored() -> None:
    """A result that is returned, or that more than one equation reads, and differences from it."""
    x, w = normal((2, 3, 8, 8), eg.float64), normal((4, 3, 3, 3), eg.float64, 1)
    bias = normal((4, 1, 1), eg.float64, 2)
    for function in (
        lambda x, w: (y := F.conv2d(x, w), y.relu()),
        lambda x, w: (y := F.conv2d(x, w) + bias) * y.relu(),
        lambda x, w: (bias - F.conv2d(x, w)).relu(),
        lambda x, w: (F.conv2d(x, w) - bias).relu() + 1,
        lambda x, w: F.conv2d(x, w)[:, :2].relu(),
        lambda x, w: F.conv2d(x, w[:1]).relu() * bias,
    ):
        found, expected = eg.compile(function)(x, w), function(x, w)
        assert_alike(found, expected, 1e-11)


def test_other_additions_are_no_epilogue() -> None:
    """Numbers for each column, those that are computed, and sums that go into outside memory."""
    x, w = normal((2, 8, 8, 8), eg.float64), normal((8, 8, 3, 3), eg.float64, 1)
    row = normal((8,), eg.float64, 2)
    for other in (lambda: row, lambda: (row * 2)[:, None, None]):
        check(lambda x, w, other=other: F.conv2d(x, w, None, 1, 1) + other(), x, w)

    def overwrite(x: Any) -> None:
        x.copy_(F.conv2d(x, w, row, 1, 1))

    eager, compiled = x.clone(), x.clone()
    overwrite(eager)
    eg.compile(overwrite)(compiled)
    assert_alike([compiled], [eager], 1e-11)


def test_biases_of_a_step_need_no_kernels() -> None:
    """Also if the gradient needs the sum again."""
    conv, norm = nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8)
    x = normal((4, 8, 32, 32), eg.float32)

    def step(x: Any) -> Any:
        loss = F.silu(norm(conv(x))).square().mean()
        return eg.autograd.grad(loss, list(conv.parameters()))

    compiled = eg.compile(step)
    compiled(x)
    assert "add" not in labels(compiled)


def test_weight_gradient_without_partial_sums() -> None:
    """A kernel of one element with few pixels."""
    x, w = normal((1, 128, 7, 7), eg.float32), normal((96, 128, 1, 1), eg.float32, 1)
    check(F.conv2d, x, w)
    compiled = eg.compile(with_gradients(F.conv2d))
    compiled(x, w)
    assert "conv_weight" in labels(compiled)
    assert "conv_weight sum" not in labels(compiled)


@pytest.mark.parametrize("stride, padding, output_padding, dilation, groups", [
    (1, 0, 0, 1, 1), (2, 1, 1, 1, 1), ((3, 2), (0, 2), (2, 0), 1, 2), (2, 1, 0, (1, 3), 1),
])  # fmt: skip
def test_transposed(
    stride: Any, padding: Any, output_padding: Any, dilation: Any, groups: int
) -> None:
    x, w = normal((2, 6, 5, 7), eg.float32), normal((6, 4, 3, 3), eg.float32, 1)

    def function(x: Any, w: Any) -> Any:
        return F.conv_transpose2d(x, w, None, stride, padding, output_padding, groups, dilation)

    check(function, x, w)


@pytest.mark.parametrize("stride, padding, dilation", [(1, 2, 1), (2, 0, 1), (3, 1, 2)])
def test_one_dimension(stride: int, padding: int, dilation: int) -> None:
    x, w = normal((2, 4, 30), eg.float32), normal((6, 2, 3), eg.float32, 1)
    check(lambda x, w: F.conv1d(x, w, None, stride, padding, dilation, 2), x, w)
    w = normal((4, 3, 3), eg.float32, 1)
    check(lambda x, w: F.conv_transpose1d(x, w, None, stride, padding, 0, 2, dilation), x, w)


@pytest.mark.parametrize("view", [
    lambda x: x.transpose(2, 3),
    lambda x: x.transpose(0, 1),
    lambda x: x[:, :, ::2, 1::3],
    lambda x: x[:, :1].expand(6, 6, 8, 13),
    lambda x: x[:, :, :, :1].expand(6, 6, 8, 13),
], ids=["columns", "channels", "steps", "channel", "column"])  # fmt: skip
def test_views(view: Any) -> None:
    x, w = normal((6, 6, 8, 13), eg.float32), normal((4, 6, 2, 2), eg.float32, 1)
    beside = ("pad_slice",)
    check(lambda x, w: F.conv2d(view(x), w.transpose(2, 3), padding=1), x, w, beside=beside)
    check(lambda x: F.max_pool2d(view(x), 2) + F.avg_pool2d(view(x), 2), x, beside=beside)


def test_a_gradient_that_is_one_number_everywhere() -> None:
    def step(x: Any, w: Any) -> Any:
        leaves = [t.detach().requires_grad_() for t in (x, w)]
        return eg.autograd.grad(F.conv2d(*leaves, padding=1).sum(), leaves)

    x, w = normal((2, 3, 9, 10), eg.float64), normal((4, 3, 3, 3), eg.float64, 1)
    compiled = eg.compile(step)
    assert_alike(compiled(x, w), step(x, w))
    assert numpy_calls(compiled) == []


def test_second_order() -> None:
    def function(x: Any, w: Any) -> Any:
        y = F.max_pool2d(F.conv2d(x, w, stride=2, padding=1), 2)
        (g,) = eg.autograd.grad((y * y).sum(), x, create_graph=True)
        return g * g

    check(function, normal((2, 3, 11, 11), eg.float64), normal((4, 3, 3, 3), eg.float64, 1))


def test_what_has_no_kernel_runs_in_numpy() -> None:
    x, w = normal((0, 3, 5, 5), eg.float64), normal((4, 3, 3, 3), eg.float64, 1)
    compiled = eg.compile(F.conv2d)
    assert_alike(compiled(x, w), F.conv2d(x, w))
    assert numpy_calls(compiled) == ["call conv"]


# -- whole steps --------------------------------------------------------------------------------


class Block(nn.Module):
    """Convolutions with group norm, as in residual networks."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(16, 16, 3, padding=1) for _ in range(2)])
        self.norms = nn.ModuleList([nn.GroupNorm(4, 16) for _ in range(2)])
        self.shrink = nn.Conv2d(16, 10, 1, stride=2)

    def forward(self, x: Any) -> Any:
        y = x
        for conv, norm in zip(self.convs, self.norms, strict=True):
            y = F.silu(norm(conv(y)))
        return F.avg_pool2d(self.shrink(x + y), 3).flatten(1)


def lenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


@pytest.mark.parametrize("make, shape", [
    (lenet, (8, 1, 28, 28)), (lenet, (1, 1, 28, 28)), (Block, (2, 16, 6, 6)),
], ids=["lenet", "lenet alone", "block"])  # fmt: skip
def test_a_training_step_needs_no_numpy(make: Callable[[], nn.Module], shape: Any) -> None:
    x, target = normal(shape, eg.float64), eg.arange(shape[0]) % 10

    def train(compiling: bool) -> Any:
        eg.manual_seed(0)
        model = make().double()
        optimizer = eg.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

        def step(x: Any, target: Any) -> Any:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), target)
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = eg.compile(step) if compiling else step
        losses = [run(x, target) for _ in range(4)]
        if compiling:
            assert numpy_calls(run) == []
        return losses, list(model.parameters())

    assert_alike(train(True), train(False), 1e-9)
