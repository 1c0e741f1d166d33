"""A scenario run twice, as written and compiled, and compared after every round."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import evergrad as eg
from evergrad.core.tree import tree_leaves


@contextmanager
def num_threads(number: int) -> Iterator[None]:
    before = eg.get_num_threads()
    eg.set_num_threads(number)
    try:
        yield
    finally:
        eg.set_num_threads(before)


def arrays(value: Any) -> list[Any]:
    """All tensors and numbers in a nested value; tensors as arrays."""
    return [
        np.array(v.detach().array()) if isinstance(v, eg.Tensor) else v for v in tree_leaves(value)
    ]


def assert_alike(found: Any, expected: Any, tolerance: float = 1e-11) -> None:
    """Equal structure, element types and, within a tolerance, numbers."""
    ours, theirs = arrays(found), arrays(expected)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        if isinstance(b, np.ndarray):
            assert a.dtype == b.dtype and a.shape == b.shape
            if b.dtype.kind in "biu":
                np.testing.assert_array_equal(a, b)
            else:
                np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
        else:
            assert a == b


class Scenario:
    """What is trained: ``step`` is called in rounds, ``watched`` gives what else to compare.

    A subclass makes its tensors in ``__init__`` and may override ``between``, which runs outside of
    the step before each round.
    """

    def step(self, *args: Any) -> Any:
        raise NotImplementedError

    def arguments(self, round: int) -> tuple[Any, ...]:
        return ()

    def between(self, round: int) -> None:
        pass

    def watched(self) -> Any:
        return ()


def rounds_of(make: Callable[[], Scenario], rounds: int, compiled: bool) -> Iterable[Any]:
    """Run a scenario; gives (results, what is watched, the next random number) of each round."""
    eg.manual_seed(0)
    scenario = make()
    step = eg.compile(scenario.step) if compiled else scenario.step
    for round in range(rounds):
        scenario.between(round)
        result = step(*scenario.arguments(round))
        yield arrays((result, scenario.watched())), eg.get_rng_state().tolist(), step


def check(
    make: Callable[[], Scenario], rounds: int = 4, tolerance: float = 1e-11,
    programs: int | None = None,
) -> int:  # fmt: skip
    """A scenario ends alike in both ways after every round; ``programs`` were made on the way.
    Gives how many."""
    expected = [(found, state) for found, state, _ in rounds_of(make, rounds, compiled=False)]
    made = 0
    for round, (found, state, step) in enumerate(rounds_of(make, rounds, compiled=True)):
        assert_alike(found, expected[round][0], tolerance)
        assert state == expected[round][1], "the random stream is at another place"
        made = program_count(step)
    assert programs in (None, made)
    return made


def program_count(compiled: Any) -> int:
    """How many programs were made of a compiled function so far."""
    return sum(len(variants) for variants in compiled.variants.values())


def programs_of(compiled: Any) -> list[Any]:
    return [v.program for variants in compiled.variants.values() for v in variants]


def lowered_programs_of(compiled: Any) -> list[Any]:
    """Programs that can tell what they were made of, also where others came from the disk."""
    variants = [v for held in compiled.variants.values() for v in held]
    return [variant.lowered().program for variant in variants]


def randn(*shape: int, seed: int = 0) -> Any:
    """Fixed normal numbers in float64, without the global random stream."""
    return eg.tensor(np.random.default_rng([7, seed]).standard_normal(shape))
