"""Further names of PyTorch beside PyTorch: forward mode, recurrent functions, Sobol, masks."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad
from evergrad import nn
from evergrad.errors import SavedValueError
from evergrad.quasirandom import SobolEngine

RNG = np.random.default_rng(7)


def both(torch: ModuleType, call: Any, *arrays: Any) -> tuple[Any, Any]:
    """The results of a call under both libraries, as arrays."""
    results = []
    for library in (evergrad, torch):
        found = call(library, *(library.tensor(array) for array in arrays))
        found = found if isinstance(found, (tuple, list)) else (found,)
        results.append([t.detach().numpy() for t in found])
    return results[0], results[1]


@pytest.mark.parametrize(
    "call",
    [
        lambda t, x: t.segment_reduce(x, "mean", lengths=t.tensor([2, 0, 4]), initial=1.0),
        lambda t, x: t.segment_reduce(x, "max", offsets=t.tensor([0, 1, 6])),
        lambda t, x: t.masked.mean(x, 1, mask=x > 0),
        lambda t, x: t.masked.softmax(x, 0, mask=x > -1),
        lambda t, x: t.masked.std(x, (0, 1), mask=x > -1, keepdim=True),
        lambda t, x: t.signal.windows.kaiser(7, beta=5.0),
        lambda t, x: t.signal.windows.gaussian(8, std=2.0, sym=False),
        lambda t, x: t.native_layer_norm(x, (4,), None, None, 1e-5),
        lambda t, x: t.native_dropout(x, 0.0, True),
        lambda t, x: t.empty_permuted((2, 3), (1, 0)) * 0 + x[:2, :3],
        lambda t, x: t.conv_tbc(x.unsqueeze(1), x[:3, :4].reshape(3, 4, 1).contiguous(),
                                t.zeros(1, dtype=x.dtype)),
        lambda t, x: t.nn.functional.linear_cross_entropy(x, x[:3], t.tensor([0, 2, 1, 0, 1, 2])),
        lambda t, x: t.softmax(x, 1, out=t.empty(6, 4, dtype=x.dtype)),
        lambda t, x: t.nn.functional.gelu(x, approximate="tanh"),
    ],
)  # fmt: skip
def test_functions(torch: ModuleType, call: Any) -> None:
    for name in ("masked", "signal.windows"):
        import_module(f"{torch.__name__}.{name}")
    ours, theirs = both(torch, call, RNG.standard_normal((6, 4)))
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_recurrent_functions(kind: str, bidirectional: bool) -> None:
    layer = getattr(nn, kind)(3, 4, 2, bidirectional=bidirectional, batch_first=True)
    x = evergrad.randn(2, 5, 3)
    rows = 4 if bidirectional else 2
    h = evergrad.randn(rows, 2, 4)
    hx = (h, evergrad.randn(rows, 2, 4)) if kind == "LSTM" else h
    name = "rnn_tanh" if kind == "RNN" else kind.lower()
    weights = [w for group in layer.all_weights for w in group]
    found = getattr(evergrad, name)(x, hx, weights, True, 2, 0.0, False, bidirectional, True)
    expected, last = layer(x, hx)
    assert evergrad.equal(found[0], expected)
    assert evergrad.equal(found[1], last[0] if kind == "LSTM" else last)


def test_cells(torch: ModuleType) -> None:
    arrays = [RNG.standard_normal(shape) for shape in ((2, 3), (2, 4), (2, 4), (16, 3), (16, 4))]
    ours, theirs = both(torch, lambda t, x, h, c, w, u: t.lstm_cell(x, (h, c), w, u), *arrays)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    x, h, _, w, u = arrays
    ours, theirs = both(torch, lambda t, *a: t.gru_cell(*a), x, h, w[:12], u[:12])
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_forward_mode(torch: ModuleType) -> None:
    def tangent(library: Any, x: Any, t: Any) -> Any:
        forward = import_module(f"{library.__name__}.autograd.forward_ad")
        with forward.dual_level():
            dual = forward.make_dual(x, t)
            out = (dual.sin() * dual).sum(1) + dual[:, 0]
            return forward.unpack_dual(out).tangent

    ours, theirs = both(torch, tangent, *RNG.standard_normal((2, 3, 4)))
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    with pytest.raises(RuntimeError, match="no level exists"):
        evergrad.autograd.forward_ad.make_dual(evergrad.ones(2), evergrad.ones(2))


def test_derivatives_of_convolutions(torch: ModuleType) -> None:
    def derivatives(library: Any, x: Any, w: Any, g: Any) -> Any:
        grad = import_module(f"{library.__name__}.nn.grad")
        by_input = grad.conv2d_input(x.shape, w, g, padding=1)
        return by_input, grad.conv2d_weight(x, w.shape, g, padding=1)

    shapes = ((1, 2, 5, 5), (3, 2, 3, 3), (1, 3, 5, 5))
    ours, theirs = both(torch, derivatives, *(RNG.standard_normal(shape) for shape in shapes))
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-9)


@pytest.mark.parametrize("scramble", [False, True])
def test_sobol_points(torch: ModuleType, scramble: bool) -> None:
    for dimension in (1, 3, 40):
        ours = SobolEngine(dimension, scramble, seed=5)
        theirs = torch.quasirandom.SobolEngine(dimension, scramble, seed=5)
        for count in (1, 3, 4):
            drawn = ours.draw(count).numpy()
            np.testing.assert_array_equal(drawn, theirs.draw(count).numpy())
        ours.fast_forward(3), theirs.fast_forward(3)
        np.testing.assert_array_equal(ours.draw().numpy(), theirs.draw().numpy())
    with pytest.raises(ValueError, match="dimensionality"):
        SobolEngine(0)


@pytest.mark.parametrize("kind", ["float32", "int64", "bool", "complex128", "bfloat16"])
def test_make_tensor(torch: ModuleType, kind: str) -> None:
    made = []
    for library in (evergrad, torch):
        library.manual_seed(4)
        make = import_module(f"{library.__name__}.testing").make_tensor
        options = {"dtype": getattr(library, kind), "device": "cpu", "noncontiguous": True}
        made.append(make(3, 4, **options).to(library.complex128).numpy())
    np.testing.assert_array_equal(*made)


def test_writes_through_data() -> None:
    def gradient() -> Any:
        x = evergrad.ones(3, requires_grad=True)
        y = x * 2
        z = y * y
        y.data[0] = 5.0
        z.sum().backward()
        return x.grad.tolist()

    with pytest.raises(SavedValueError, match="set_data_writes_counted"):
        gradient()
    evergrad.autograd.graph.set_data_writes_counted(False)
    try:
        with pytest.warns(UserWarning, match="written through .data"):
            assert gradient() == [20.0, 8.0, 8.0]
    finally:
        evergrad.autograd.graph.set_data_writes_counted(True)


def test_writes_that_are_allowed() -> None:
    x = evergrad.ones(2, requires_grad=True)
    with evergrad.autograd.graph.allow_mutation_on_saved_tensors():
        y = x.exp()
        z = y * y
        y.zero_()
        z.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.exp(2.0), rtol=1e-6)


def test_small_semantics() -> None:
    weight = nn.Parameter(evergrad.ones(2))
    with evergrad.no_grad():
        assert weight.numpy().tolist() == [1.0, 1.0]
    leaf = evergrad.arange(6.0)[2:5].detach().requires_grad_()
    evergrad.as_strided(leaf, (2,), (2,), 2).sum().backward()
    assert leaf.grad.tolist() == [1.0, 0.0, 1.0]
    future: Any = evergrad.futures.Future[int]()
    future.add_done_callback(lambda f: future.__dict__.setdefault("seen", f.value()))
    future.set_result(3)
    assert future.then(lambda f: f.wait() + 1).wait() == 4 and future.seen == 3
    double = evergrad.func.functionalize(lambda x: x.clone().mul_(2))
    assert double(evergrad.ones(2)).tolist() == [2.0, 2.0]
    with evergrad.inference_mode():
        assert evergrad.is_inference(evergrad.ones(1))


@pytest.mark.parametrize(
    ("size", "align", "scales"),
    [((3, 3), False, (None, None)), ((3, 3), False, (1.7, 0.9)), ((5, 7), True, (0.6, 0.8)),
     ((5, 7), False, (None, 0.8)), ((9, 9), False, (1.7, 0.9)), ((12, 4), False, (1.3, 0.5))],
)  # fmt: skip
def test_smoothed_interpolation_at_given_scales(
    torch: ModuleType, size: Any, align: bool, scales: Any
) -> None:
    images = RNG.standard_normal((1, 2, 9, 9)).astype(np.float32)
    function = import_module("evergrad._aten")._upsample_bilinear2d_aa
    own = function(evergrad.tensor(images), list(size), align, *scales)
    smooth = torch.ops.aten._upsample_bilinear2d_aa
    expected = smooth(torch.tensor(images), list(size), align, *scales)
    np.testing.assert_allclose(own.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
