"""Random Python steps, eager and compiled; 5,000 of them are in tests/soak."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

import evergrad as eg

from .harness import differences, run
from .random_steps import Program, generate, shrink


def difference_of(program: Program) -> list[str]:
    case = program.case()
    eager = run(case, eg)
    assert eager.escaped is None, f"{eager.escaped}\n{program.source()}"
    return differences(eager, run(case, eg, eg.compile))


def check(seed: int) -> None:
    """Fail with the smallest program found that still differs."""
    program = generate(seed)
    found = difference_of(program)
    if not found:
        return
    program = shrink(program, lambda p: bool(difference_of(p)))
    found = difference_of(program) or found
    text = "\n".join([f"seed {seed}", *found[:6], program.changing_part()])
    pytest.fail(text, pytrace=False)


@pytest.mark.parametrize("seed", range(200))
def test_random_step(seed: int) -> None:
    check(seed)


def test_random_steps_are_as_in_pytorch(torch: ModuleType) -> None:
    """Eager evaluation of the programs themselves."""
    for seed in range(200):
        case = generate(seed).case()
        ours, theirs = run(case, eg), run(case, torch)
        assert theirs.escaped is None, f"{theirs.escaped}\n{generate(seed).source()}"
        ours.streams = {n: ours.streams[n] for n in ("random", "numpy.random")}
        found = differences(theirs, ours, messages=False)
        assert not found, "\n".join([f"seed {seed}", *found[:5], generate(seed).source()])


def test_programs_are_reproducible_and_differ() -> None:
    assert generate(3).source() == generate(3).source()
    assert len({generate(seed).source() for seed in range(200)}) == 200


def test_the_shrinker_keeps_what_fails() -> None:
    def fails(program: Program) -> bool:
        return "random.random" in program.source().partition("t0, t1 =")[2]

    seed = next(s for s in range(200) if fails(generate(s)) and len(generate(s).body) > 3)
    small: Any = shrink(generate(seed), fails)
    assert fails(small) and len(small.body) <= 1
