"""Checkpointing: the same gradients from less memory, or an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.errors import SavedValueError
from evergrad.memory.ledger import LEDGER
from evergrad.utils.checkpoint import CheckpointError, checkpoint, checkpoint_sequential
from twins import assert_same, fixed, leaf, plain

X = [[0.1, -0.4], [0.7, 0.2]]
W = [[1.0, 0.5], [-0.3, 0.8]]


def layer(x: Any, w: Any) -> Any:
    return ((x @ w).tanh() * x.exp()).sin()


def gradients(run: Callable[..., Any], order: int = 1) -> Any:
    """Values and derivatives of ``run(layer-like function, x, w)``."""
    x, w = leaf(eg, X), leaf(eg, W)
    out = run(x, w)
    found = [out]
    value = (out * out).sum()
    for _ in range(order):
        grads = eg.autograd.grad(value, [x, w], create_graph=True)
        found += grads
        value = sum((g * g).sum() for g in grads)
    return plain(found)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_gradients_are_the_same(order: int) -> None:
    assert_same(
        gradients(lambda x, w: checkpoint(layer, x, w, use_reentrant=False), order),
        gradients(layer, order),
    )


@pytest.mark.parametrize("early_stop", [True, False])
def test_nested(early_stop: bool) -> None:
    def inner(x: Any, w: Any) -> Any:
        return checkpoint(layer, layer(x, w), w, early_stop=early_stop) * x

    def outer(x: Any, w: Any) -> Any:
        return checkpoint(inner, inner(x, w) + w, w, early_stop=early_stop)

    def plainly(x: Any, w: Any) -> Any:
        def once(x: Any, w: Any) -> Any:
            return layer(layer(x, w), w) * x

        return once(once(x, w) + w, w)

    run = lambda x, w: checkpoint(outer, x, w, early_stop=early_stop)
    assert_same(gradients(run, 2), gradients(plainly, 2), tolerance=1e-8)


def test_arguments_of_all_kinds() -> None:
    seen: list[Any] = []

    def function(x: Any, power: int, *, pair: Any, named: dict[str, Any], word: str = "no") -> Any:
        seen.append((power, word))
        a, b = pair
        return (x * a + b * named["w"]) ** power, word

    x, a, w = leaf(eg, [1.0, 2.0]), leaf(eg, [3.0, 4.0]), leaf(eg, [5.0, 6.0])
    out, word = checkpoint(function, x, 2, pair=(a, 7.0), named={"w": w, "n": 1}, word="yes")
    assert word == "yes"
    out.sum().backward()
    assert seen == [(2, "yes"), (2, "yes")]
    inner = 2 * (np.array([3.0, 8.0]) + 7 * np.array([5.0, 6.0]))
    np.testing.assert_allclose(x.grad.numpy(), inner * [3.0, 4.0])
    np.testing.assert_allclose(a.grad.numpy(), inner * [1.0, 2.0])
    np.testing.assert_allclose(w.grad.numpy(), inner * 7)


def test_what_the_function_closes_over_gets_its_gradient() -> None:
    w = leaf(eg, W)
    x = fixed(eg, X)  # no argument asks for a gradient
    checkpoint(lambda x: layer(x, w), x).sum().backward()
    expected = leaf(eg, W)
    layer(x, expected).sum().backward()
    assert_same(plain(w.grad), plain(expected.grad))


def test_several_results_and_unused_ones() -> None:
    x = leaf(eg, X)
    first, second = checkpoint(lambda x: (x.exp(), x.sin() * x), x)
    second.sum().backward()
    expected = np.cos(X) * X + np.sin(X)
    np.testing.assert_allclose(x.grad.numpy(), expected)
    assert first.requires_grad


def test_the_graph_may_be_walked_again() -> None:
    x = leaf(eg, X)
    out = checkpoint(layer, x, fixed(eg, W)).sum()
    out.backward(retain_graph=True)
    first = x.grad.clone()
    out.backward()
    assert_same(plain(x.grad), plain(first * 2))


def test_without_gradients_it_is_a_call() -> None:
    calls: list[int] = []

    def function(x: Any) -> Any:
        calls.append(1)
        return x * 2

    with eg.no_grad():
        out = checkpoint(function, leaf(eg, X))
    assert not out.requires_grad and len(calls) == 1


def test_gradients_can_be_taken_inside() -> None:
    def function(x: Any) -> Any:
        (slope,) = eg.autograd.grad((x**3).sum(), x, create_graph=True)
        return slope * x

    x = leaf(eg, X)
    checkpoint(function, x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 9 * np.array(X) ** 2)


def test_part_without_gradients_inside() -> None:
    def function(x: Any) -> Any:
        with eg.no_grad():
            scale = x.exp()
        return x * scale

    x = leaf(eg, X)
    checkpoint(function, x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.exp(X))


def test_contexts_for_both_runs() -> None:
    entered: list[str] = []

    class Note:
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            entered.append(self.name)

        def __exit__(self, *exc: object) -> None:
            entered.append("left " + self.name)

    contexts = lambda: (Note("forward"), Note("recompute"))
    x = leaf(eg, X)
    checkpoint(lambda x: x.exp(), x, context_fn=contexts).sum().backward()
    assert entered == ["forward", "left forward", "recompute", "left recompute"]


# -- random numbers -----------------------------------------------------------------------------


def noisy(x: Any) -> Any:
    mask = (eg.rand(x.shape, dtype=x.dtype) > 0.5) * 2.0
    return (x * mask).exp() * eg.randn(x.shape, dtype=x.dtype)


def test_random_numbers_are_drawn_again() -> None:
    x = leaf(eg, np.linspace(-1, 1, 64))
    eg.manual_seed(3)
    checkpoint(noisy, x).sum().backward()
    after = eg.rand(3).tolist()
    expected = leaf(eg, np.linspace(-1, 1, 64))
    eg.manual_seed(3)
    noisy(expected).sum().backward()
    assert_same(plain(x.grad), plain(expected.grad))
    assert after == eg.rand(3).tolist(), "the stream goes on where the forward pass left it"


def test_the_stream_is_not_disturbed_by_backward() -> None:
    x = leaf(eg, np.linspace(-1, 1, 64))
    eg.manual_seed(3)
    out = checkpoint(noisy, x).sum()
    between = eg.get_rng_state()
    out.backward()
    assert eg.get_rng_state().tolist() == between.tolist()


def test_other_random_numbers_are_an_error() -> None:
    x = leaf(eg, np.linspace(-1, 1, 64))
    out = checkpoint(noisy, x, preserve_rng_state=False).sum()
    eg.manual_seed(77)
    with pytest.raises(CheckpointError):
        out.backward()


def test_random_numbers_inside_a_trace() -> None:
    def function(x: Any) -> Any:
        return noisy(x).sum()

    x = fixed(eg, np.linspace(-1, 1, 8))
    rows = eg.stack([x, x + 1])
    for transform in (eg.func.grad(function), eg.func.grad(lambda x: checkpoint(function, x))):
        eg.manual_seed(5)
        found = eg.func.vmap(transform, randomness="different")(rows)
        eg.manual_seed(5)
        again = eg.func.vmap(eg.func.grad(function), randomness="different")(rows)
        assert_same(plain(found), plain(again))


# -- memory -------------------------------------------------------------------------------------


def peak_above(run: Callable[[Any], Any], x: Any) -> tuple[int, int]:
    """Bytes held between forward and backward, and the highest point of both, above the start."""
    start = LEDGER.live
    LEDGER.peak = start
    out = run(x)
    held = LEDGER.live - start
    out.sum().backward()
    return held, LEDGER.peak - start


def deep(x: Any) -> Any:
    for _ in range(10):
        x = x.exp().sin().tanh()
    return x


def test_less_is_kept() -> None:
    x = leaf(eg, np.linspace(0, 1, 10_000))
    size = x.nbytes

    def in_parts(x: Any) -> Any:
        for _ in range(10):
            x = checkpoint(lambda x: x.exp().sin().tanh(), x)
        return x

    kept, peak = peak_above(deep, x)
    assert kept >= 20 * size
    x.grad = None
    kept_whole, _ = peak_above(lambda x: checkpoint(deep, x), x)
    assert kept_whole <= 1.1 * size, "only the result"
    x.grad = None
    kept_parts, peak_parts = peak_above(in_parts, x)
    assert kept_parts <= 10.5 * size, "only the inputs of the parts"
    assert peak_parts < 0.65 * peak


def test_nested_parts_keep_only_the_outermost_input() -> None:
    x = leaf(eg, np.linspace(0, 1, 10_000))

    def in_parts(x: Any) -> Any:
        for _ in range(10):
            x = checkpoint(lambda x: x.exp().sin().tanh(), x)
        return x

    kept, peak = peak_above(lambda x: checkpoint(in_parts, x), x)
    assert kept <= 1.1 * x.nbytes
    assert peak <= 20 * x.nbytes


def test_everything_is_released() -> None:
    start = LEDGER.live, LEDGER.count
    x = leaf(eg, X)
    out = checkpoint(layer, x, fixed(eg, W)).sum()
    out.backward()
    del x, out
    assert (LEDGER.live, LEDGER.count) == start


# -- right or an error --------------------------------------------------------------------------


def flipping(first: Callable[[Any], Any], second: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that does something else when it is called again."""
    calls: list[int] = []

    def function(x: Any) -> Any:
        calls.append(1)
        return first(x) if len(calls) == 1 else second(x)

    return function


DIFFERENT = {
    "fewer values": (lambda x: x.exp().sin(), lambda x: x + 1),
    "another shape": (lambda x: x.exp(), lambda x: x[:1].exp()),
    "another dtype": (lambda x: x.exp(), lambda x: x.float().exp()),
    "another op": (lambda x: x.exp(), lambda x: x.sin()),
    "another constant": (lambda x: (x * 2).exp(), lambda x: (x * 3).exp()),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_function_that_behaves_differently_is_an_error(name: str) -> None:
    x = leaf(eg, X)
    out = checkpoint(flipping(*DIFFERENT[name]), x).sum()
    with pytest.raises(CheckpointError, match="checkpoint") as error:
        out.backward()
    assert "same" in str(error.value)
    assert x.grad is None


def test_the_check_of_values_can_be_turned_off() -> None:
    x = leaf(eg, X)
    function = flipping(lambda x: (x * 2).exp(), lambda x: (x * 3).exp())
    checkpoint(function, x, determinism_check="none").sum().backward()
    assert x.grad is not None
    with pytest.raises(ValueError, match="determinism_check"):
        checkpoint(function, x, determinism_check="perhaps")


def test_an_overwritten_argument_is_an_error() -> None:
    x = leaf(eg, X)
    y = x * 1
    out = checkpoint(lambda y: y.exp(), y)
    y.data.zero_()
    with pytest.raises(SavedValueError, match="checkpoint") as error:
        out.sum().backward()
    assert "y.data.zero_()" in str(error.value)
    array = np.array(X)
    data = eg.from_numpy(array)
    out = checkpoint(lambda x: (x * data).exp(), x)
    array[:] = 0
    with pytest.raises((SavedValueError, CheckpointError)):
        out.sum().backward()


def test_an_overwritten_parameter_is_an_error() -> None:
    x, w, b = leaf(eg, X), leaf(eg, W), leaf(eg, X)
    for parameter in (w, b):
        out = checkpoint(lambda x: (x @ w + b).exp(), x).sum()
        with eg.no_grad():
            parameter.mul_(0.5)
        with pytest.raises((SavedValueError, CheckpointError)):
            out.backward()


def test_a_function_that_writes_to_its_argument_is_an_error() -> None:
    y = leaf(eg, X) * 1
    out = checkpoint(lambda y: y.mul_(2).exp(), y)
    with pytest.raises((SavedValueError, CheckpointError)):
        out.sum().backward()


def test_an_error_in_the_second_run_comes_out() -> None:
    def fails(x: Any) -> Any:
        raise KeyError("second")

    x = leaf(eg, X)
    state = eg.get_rng_state().tolist()
    out = checkpoint(flipping(lambda x: x.exp(), fails), x).sum()
    with pytest.raises(KeyError, match="second"):
        out.backward()
    assert eg.get_rng_state().tolist() == state


# -- sequences ----------------------------------------------------------------------------------


@pytest.mark.parametrize("segments", [1, 2, 3, 5])
def test_sequences(segments: int) -> None:
    functions = [eg.sin, eg.exp, eg.tanh, eg.cos, eg.sigmoid]
    x, expected = leaf(eg, X), leaf(eg, X)
    checkpoint_sequential(functions, segments, x).sum().backward()
    value = expected
    for function in functions:
        value = function(value)
    value.sum().backward()
    assert_same(plain(x.grad), plain(expected.grad))


def test_with_saved_value_hooks_around() -> None:
    packed: list[Any] = []

    def pack(tensor: Any) -> Any:
        packed.append(tuple(tensor.shape))
        return tensor.detach().clone()

    x = leaf(eg, X)
    with eg.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = checkpoint(layer, x, fixed(eg, W))
    assert packed == [(2, 2), (2, 2)], "the arguments alone"
    out.sum().backward()
    expected = leaf(eg, X)
    layer(expected, fixed(eg, W)).sum().backward()
    assert_same(plain(x.grad), plain(expected.grad))
