"""Random masks inside compiled programs: eager's numbers, drawn natively, kept as bytes or not at
all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import evergrad as eg
import evergrad.nn.functional as F
from evergrad import nn
from evergrad.core.rng.default_generator import using_generator

from .steps import programs_of
from .test_attention import labels, normal

ALGORITHMS = ["mt19937", "philox"]


@contextmanager
def fresh_stream(algorithm: str, before: int = 0) -> Iterator[Any]:
    """A generator that has given some numbers, as the calling thread's own."""
    generator = eg.Generator(algorithm=algorithm)
    generator.manual_seed(11)
    with using_generator(generator):
        eg.rand(before)
        yield generator


def assert_same(function: Callable[..., Any], algorithm: str, *given: Any, before: int = 0) -> Any:
    compiled, found = eg.compile(function), []
    for run in (function, compiled):
        with fresh_stream(algorithm, before) as generator:
            results = [x.numpy() for _ in range(3) for x in run(*given)]
        found.append((results, generator.get_state().tolist()))
    for ours, theirs in zip(found[1][0], found[0][0], strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert found[0][1] == found[1][1]
    return compiled


def two_masks(x: Any) -> Any:
    once = F.dropout(x, 0.3)
    return once, F.dropout(once * 2, 0.5)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("before", [0, 1, 623])
def test_masks_are_those_of_eager(algorithm: str, before: int) -> None:
    for shape in ((1,), (17,), (312,), (5, 257), (3, 2, 401)):
        compiled = assert_same(two_masks, algorithm, eg.tensor(normal(*shape)), before=before)
        assert not any(label.startswith("call") for label in labels(compiled))


def masks_of_turned(x: Any) -> Any:
    """Masks over a view, which is drawn as it lies, and over results of ops on it, which lie in
    order."""
    turned = x.transpose(0, -1)
    views = F.dropout(turned, 0.3), F.dropout(turned[1:], 0.4)
    made = turned * 2, turned + turned.clone(), F.relu(turned), -turned
    masked = [F.dropout(y, 0.3) for y in made]
    return *views, *masked, eg.rand_like(turned), eg.rand_like(turned.exp())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 5), (130, 140), (300, 900)])
def test_masks_over_what_lies_otherwise(algorithm: str, shape: tuple[int, ...]) -> None:
    assert_same(masks_of_turned, algorithm, eg.tensor(normal(*shape)))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int64", "bool"])
def test_masks_of_any_element_type(algorithm: str, dtype: str) -> None:
    def draw(x: Any) -> Any:
        return (eg.empty(x.shape, dtype=getattr(eg, dtype)).bernoulli_(0.25).float() + x,)

    assert_same(draw, algorithm, eg.tensor(normal(7, 50)))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_draws_between_numpy_calls(algorithm: str) -> None:
    def mixed(x: Any) -> Any:
        once = F.dropout(x, 0.3)
        noise = eg.randn(5)
        counts = eg.poisson(x.abs())
        return F.dropout(once, 0.5), noise, counts, eg.rand(7), eg.randn(3)

    compiled = assert_same(mixed, algorithm, eg.tensor(normal(4, 9)))
    assert "call poisson" in labels(compiled)
    assert ("call normal" in labels(compiled)) == (algorithm == "philox")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_masks_in_the_order_of_memory(algorithm: str) -> None:
    def turned(x: Any) -> Any:
        return F.dropout(x.transpose(0, 1), 0.5), F.dropout1d(x, 0.5)

    compiled = assert_same(turned, algorithm, eg.tensor(normal(3, 4, 5)))
    assert not any(label.startswith("call") for label in labels(compiled))


@pytest.mark.parametrize("probability", [0.0, 1e-12, 0.5, 1 - 1e-12, 1.0])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_probabilities(algorithm: str, probability: float) -> None:
    def draw(x: Any) -> Any:
        return (eg.empty_like(x).bernoulli_(probability) + x,)

    assert_same(draw, algorithm, eg.tensor(normal(600)))


def test_a_program_for_each_algorithm() -> None:
    compiled = eg.compile(two_masks)
    x = eg.tensor(normal(20))
    for algorithm in (*ALGORITHMS, *ALGORITHMS):
        with fresh_stream(algorithm):
            ours = compiled(x)[1].numpy()
        with fresh_stream(algorithm):
            np.testing.assert_array_equal(ours, two_masks(x)[1].numpy())
    assert len(programs_of(compiled)) == 2


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_call_that_fails_leaves_the_stream(algorithm: str) -> None:
    table = eg.tensor(normal(5, 8))

    def look_up(index: Any) -> Any:
        return F.dropout(F.dropout(table, 0.5)[index], 0.5)

    compiled = eg.compile(look_up)
    with fresh_stream(algorithm) as generator:
        compiled(eg.tensor([1, 2]))
        before = generator.get_state().tolist()
        with pytest.raises(IndexError):
            compiled(eg.tensor([1, 7]))
        assert generator.get_state().tolist() == before


# -- memory -------------------------------------------------------------------------------------


def trained(x: Any, weight: Any) -> Any:
    """Dropout whose input is needed again: the mask could be kept for backward."""
    y = F.dropout(x @ weight, 0.5).tanh() @ weight
    return eg.autograd.grad(y.square().sum(), [weight])


@pytest.mark.parametrize(("algorithm", "bytes_kept"), [("mt19937", 1), ("philox", 0)])
def test_masks_are_kept_as_bytes_or_made_again(algorithm: str, bytes_kept: int) -> None:
    x = eg.tensor(normal(64, 64) / 8)
    weight = eg.tensor(normal(64, 64, seed=1) / 8, requires_grad=True)
    compiled = eg.compile(trained)
    found = []
    for function in (compiled, trained):
        with fresh_stream(algorithm):
            found.append(function(x, weight)[0].numpy())
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-4)
    (program,) = programs_of(compiled)
    drawn = [b for b in program.plan.buffers if "chance" in b.label]
    assert sum(b.nbytes for b in drawn) == bytes_kept * 64 * 64


@pytest.mark.parametrize(("algorithm", "kept"), [("mt19937", 20 * 8), ("philox", 16)])
def test_a_derivative_asked_for_from_outside(algorithm: str, kept: int) -> None:
    layer = nn.Dropout(0.5)
    compiled = eg.compile(lambda x: layer(x))
    x = eg.tensor(normal(20, 8), requires_grad=True)
    found = []
    for function in (compiled, layer):
        with fresh_stream(algorithm):
            y = function(x)
            (grad,) = eg.autograd.grad(y.square().sum(), [x])
        found.append((y.detach().numpy(), grad.numpy()))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-6)
    (variant,) = [v for variants in compiled.variants.values() for v in variants]
    saved = variant.captured.graph.outputs[variant.captured.output_count :]
    assert sum(o.type.nbytes for o in saved) == kept
