"""Random programs, compiled: as in eager evaluation, whatever memory holds and who runs them."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import evergrad as eg

from .plans import check_plan, poisoned, spread_out
from .recipes import SHAPES, Kitchen, recipes
from .steps import arrays, programs_of, randn

shapes = st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3)


def make(recipe: Any, outside: Any, gradients: bool) -> Any:
    """The recipe as a function of its arguments, with or without the gradients of its results."""

    def function(*arguments: Any) -> Any:
        results = Kitchen(arguments, outside).run(recipe)
        if not gradients:
            return results
        total = sum((r * 1.5).sum() for r in results)
        if not total.requires_grad:
            return results
        found = eg.autograd.grad(total, arguments, allow_unused=True)
        return results, [g for g in found if g is not None]

    return function


def given_tensors(chosen: Any, gradients: bool) -> list[Any]:
    made = [randn(*shape, seed=n) for n, shape in enumerate(chosen)]
    return [t.requires_grad_() for t in made] if gradients else made


def assert_close(found: list[Any], expected: list[Any]) -> None:
    """Within the rounding of sums of a value's size."""
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        scale = np.abs(b[np.isfinite(b)]).max(initial=1.0)
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10 * scale)


def assert_identical(found: list[Any], expected: list[Any]) -> None:
    assert [a.tobytes() for a in found] == [b.tobytes() for b in expected]


class Case:
    """A recipe with everything it needs, new for each way to run it."""

    def __init__(self, recipe: Any, chosen: Any, gradients: bool) -> None:
        self.recipe, self.chosen, self.gradients = recipe, chosen, gradients

    def tensors(self) -> list[Any]:
        return given_tensors(self.chosen, self.gradients)

    def eager(self) -> list[Any]:
        outside = randn(3, 4, seed=99)
        return arrays((make(self.recipe, outside, self.gradients)(*self.tensors()), outside))

    def compiled(self, threads: int, apart: bool) -> list[Any]:
        """Two calls of one program in poisoned memory; the outside tensor is set back between."""
        outside = randn(3, 4, seed=99)
        compiled = eg.compile(make(self.recipe, outside, self.gradients))
        compiled.plan(*self.tensors())
        (program,) = programs_of(compiled)
        check_plan(program)
        if apart:
            spread_out(program)
        eg.set_num_threads(threads)
        found = []
        for _ in range(2):
            outside.copy_(randn(3, 4, seed=99))
            with poisoned(program):
                program.threads = threads
                found.append(arrays((compiled(*self.tensors()), outside)))
        assert_identical(found[0], found[1])
        assert programs_of(compiled) == [program]
        return found[0]


@settings(max_examples=60)
@given(recipes, shapes, st.booleans())
def test_programs(recipe: Any, chosen: Any, gradients: bool) -> None:
    case = Case(recipe, chosen, gradients)
    found = case.compiled(threads=1, apart=False)
    assert_close(found, case.eager())
    assert_identical(case.compiled(threads=2, apart=True), found)
    assert_identical(case.compiled(threads=3, apart=False), found)


@settings(max_examples=30)
@given(recipes, shapes)
def test_gradients_from_outside(recipe: Any, chosen: Any) -> None:
    """The derivative of a compiled function is that of the function."""
    gradients = []
    for compile in (lambda f: f, eg.compile):
        tensors = given_tensors(chosen, gradients=True)
        results = compile(make(recipe, randn(3, 4, seed=99), gradients=False))(*tensors)
        total = sum((r * 1.5).sum() for r in results)
        found = [None] * len(tensors)
        if total.requires_grad:
            found = eg.autograd.grad(total, tensors, allow_unused=True)
        gradients.append(found)
    for ours, theirs in zip(*gradients, strict=True):
        assert (ours is None) == (theirs is None)
        if theirs is not None:
            assert_close(arrays(ours), arrays(theirs))
