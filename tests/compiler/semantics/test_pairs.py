"""Each case eager and compiled; and eager as under PyTorch, where it has all the names."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

import evergrad as eg

from .cases import CASES
from .harness import differences, run

NAMES = sorted(CASES)
WITH_TORCH = sorted(name for name, case in CASES.items() if case.torch)


@pytest.mark.parametrize("name", NAMES)
def test_pair(name: str, record_property: Any) -> None:
    eager = run(CASES[name], eg)
    assert eager.escaped is None, eager.escaped
    compiled = run(CASES[name], eg, eg.compile)
    found = differences(eager, compiled)
    record_property("semantics", "different" if found else compiled.kind)
    assert not found, "\n".join([*found, *compiled.reasons])


@pytest.mark.parametrize("name", WITH_TORCH)
def test_eager_is_as_in_pytorch(name: str, torch: ModuleType) -> None:
    """The specification itself: eager evaluation gives what PyTorch's gives."""
    ours, theirs = run(CASES[name], eg), run(CASES[name], torch)
    assert theirs.escaped is None, theirs.escaped
    names = ("random", "numpy.random")
    ours.streams = {n: ours.streams[n] for n in names}
    found = differences(theirs, ours, messages=False)
    assert not found, "\n".join(found)


def test_there_are_at_least_500() -> None:
    kinds: dict[str, int] = {}
    for name in NAMES:
        kind = name.partition("/")[0]
        kinds[kind] = kinds.get(kind, 0) + 1
    assert len(NAMES) >= 500
    assert min(kinds.values()) >= 10, kinds
