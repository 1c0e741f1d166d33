"""Steps that are no program run in segments where that pays, else by Python alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.compiler import kept_programs
from evergrad.compiler.cache.new_signatures import SMALL_ELEMENTS
from evergrad.compiler.frontend.paths import path_policy
from evergrad.ops.rows.indexing import masked
from evergrad.testing import assert_close as assert_alike

pytestmark = pytest.mark.filterwarnings("ignore:.*is not one compiled program:RuntimeWarning")
CALLS = kept_programs._SMALL_CALLS

# Steps of which Python reads elements.
STEPS: dict[str, Callable[[Any], Any]] = {
    "array": lambda x: float((x * 2).numpy().max()) + (x * 2).sum(),
    "argument": lambda x: float(x.numpy().max()) * (x + 1).mean(),
    "unique": lambda x: (x * 3).round().unique().sum() + x.sum(),
    "mean": lambda x: float(np.mean(np.asarray(x + 1))) + x.square().sum(),
}
# What of them is no program, where it is another reason than for the others.
WHY = {"argument": "the elements of an outside tensor are read, "}


@pytest.mark.parametrize("name", STEPS)
def test_small_segments_are_left_to_python(name: str) -> None:
    step = eg.compile(STEPS[name])
    kinds = []
    for n in range(CALLS + 4):
        x = eg.arange(12.0) * 0.3 - n
        assert step(x).item() == pytest.approx(STEPS[name](x).item(), rel=1e-6)
        kinds.append(step.last_call.kind)
    assert "eager" not in kinds[:CALLS] and kinds[CALLS:] == ["eager"] * 4
    reason = step.last_call.reason
    assert reason.startswith(WHY.get(name, "the value of a traced tensor was read "))
    assert reason.endswith("; to record its operations takes longer than to compute them")


def test_large_segments_stay() -> None:
    step = eg.compile(STEPS["array"])
    x = eg.linspace(-1, 1, 4 * SMALL_ELEMENTS)
    for _ in range(CALLS + 2):
        step(x)
        assert step.last_call.kind == "segments"


def test_a_step_that_becomes_a_program_is_found_again() -> None:
    mode = {"by_data": True}

    def step(x: Any) -> Any:
        return x * float((x * 2).numpy().max()) if mode["by_data"] else x.sum()

    compiled = eg.compile(step)
    x = eg.arange(8.0) - 3
    for _ in range(CALLS + 1):
        compiled(x)
    assert compiled.last_call.kind == "eager"
    mode["by_data"] = False
    for _ in range(kept_programs._TRIED_AGAIN + 1):
        assert compiled(x).item() == 4.0
    assert compiled.last_call.kind == "whole"


def test_each_signature_decides_for_itself() -> None:
    step = eg.compile(STEPS["array"])
    small, large = eg.arange(8.0), eg.linspace(-1, 1, 4 * SMALL_ELEMENTS)
    for _ in range(CALLS + 1):
        step(small)
        small_kind = step.last_call.kind
        step(large)
        assert step.last_call.kind == "segments"
    assert small_kind == "eager"


def test_effects_are_those_of_python_on_both_sides() -> None:
    seen: list[float] = []
    state = {"count": 0, "mean": eg.zeros(())}

    def step(x: Any) -> Any:
        state["count"] += 1
        state["mean"] = 0.9 * state["mean"] + 0.1 * float((x * 2).numpy().max())
        seen.append(round(x.sum().item(), 3))
        return state["mean"] * 2

    compiled = eg.compile(step)
    for n in range(CALLS + 5):
        compiled(eg.arange(6.0) - n % 3)
    assert state["count"] == len(seen) == CALLS + 5
    assert compiled.last_call.kind == "eager" and type(state["mean"]) is eg.Tensor
    assert seen == [15.0, 9.0, 3.0] * 4 + [15.0]


def test_sizes_of_the_data_are_paths_up_to_a_number() -> None:
    """Of each size that recurs there is a program; with many sizes Python evaluates the selection,
    and other decisions are paths still."""

    def step(x: Any) -> Any:
        y = x[x > 0].sum()
        return y * 2 if y > 20 else y

    compiled = eg.compile(step)
    x = eg.arange(64.0) - 32
    for _ in range(2):
        for shift in range(6):
            assert_alike(compiled(x + shift), step(x + shift))
            compiled(x + shift)
    assert compiled.last_call.kind == "whole" and len(compiled.last_call.breaks) == 2
    for _ in range(2):
        for shift in range(-20, 20):
            assert_alike(compiled(x + shift), step(x + shift))
    policy = compiled.path_policy
    assert policy.is_on and not policy.reads_sizes
    assert sum(policy.compiled.values()) <= path_policy._MOST_SIZES


def test_sizes_that_never_recur_are_left_to_python() -> None:
    """After some new sizes a step runs as one whose elements Python reads."""

    def step(x: Any) -> Any:
        return x[x > 0].sum() * 2

    compiled = eg.compile(step)
    kinds = []
    for shift in range(path_policy._FIRST_PATHS + path_policy._MOST_NEW_SIZES + CALLS + 2):
        x = eg.arange(64.0) - 60 + shift
        assert_alike(compiled(x), step(x))
        kinds.append(compiled.last_call.kind)
    assert kinds[: path_policy._FIRST_PATHS] == ["whole"] * path_policy._FIRST_PATHS
    assert kinds[-1] == "eager" and not compiled.path_policy.reads_sizes


def test_places_in_large_masks_are_found_by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masked, "_MOST_TRACED", 32)
    compiled = eg.compile(lambda x: x[x > 0] * 2)
    for extent, kind in ((32, "whole"), (33, "segments")):
        x = eg.arange(float(extent)) - 5
        assert_alike(compiled(x), x[6:] * 2)
        assert compiled.last_call.kind == kind
