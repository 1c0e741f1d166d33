"""The harness finds what it is there to find: wraps that are wrong in one way each."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evergrad as eg

from .cases import CASES
from .harness import difference, differences, plain, run


def stale(function: Any) -> Any:
    """Gives the first result for ever."""
    kept: list[Any] = []

    def call(*args: Any, **kwargs: Any) -> Any:
        if not kept:
            kept.append(function(*args, **kwargs))
        return kept[0]

    return call


def calling(extra: Callable[[], Any]) -> Callable[[Any], Any]:
    def wrap(function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            extra()
            return function(*args, **kwargs)

        return call

    return wrap


def rounded(function: Any) -> Any:
    return lambda *args: function(*args).to(eg.float64)


WRONG = {
    "stale": stale,
    "draws from random": calling(random.random),
    "draws from numpy": calling(np.random.rand),
    "draws from the library": calling(lambda: eg.rand(1)),
    "prints": calling(lambda: print("noise")),
    "another dtype": rounded,
    "raises": calling(lambda: 1 // 0),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_compiler_is_found(name: str) -> None:
    case = CASES["attributes/read_directly"]
    eager = run(case, eg)
    assert not differences(eager, run(case, eg))
    assert differences(eager, run(case, eg, WRONG[name]))


@pytest.mark.parametrize("kind", sorted({name.partition("/")[0] for name in CASES}))
def test_staleness_is_visible_in_each_kind(kind: str) -> None:
    """Most cases of a kind change something that a stale step would miss."""
    names = [name for name in CASES if name.startswith(f"{kind}/")]
    found = [bool(differences(run(CASES[n], eg), run(CASES[n], eg, stale))) for n in names]
    assert sum(found) >= 0.8 * len(found)


def test_observations_are_copies() -> None:
    x = eg.zeros(2)
    seen = plain({"x": [x]})
    x.add_(1)
    assert difference(seen, plain({"x": [x]}))
    assert not difference(seen, plain({"x": [eg.zeros(2)]}))


def test_a_gradient_flag_is_part_of_the_observation() -> None:
    assert difference(plain(eg.zeros(2)), plain(eg.zeros(2, requires_grad=True)))
    assert difference(plain(1), plain(True)) and difference(plain(1), plain(1.0))
    assert difference(plain([1]), plain((1,)))
