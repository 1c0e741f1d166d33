"""PyTorch's op database, whole: every op in every element type, and compiled."""

from __future__ import annotations

from types import ModuleType

import pytest

from opinfo.exceptions import EXCEPTIONS
from opinfo.replay import Replay
from opinfo.test_opinfo import ALL, TYPES, draws_numbers, unexpected


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["float64", *TYPES])
def test_samples(torch: ModuleType, kind: str) -> None:
    torch.set_num_threads(1)
    replay = Replay(torch, 6)
    for op in replay.ops(kind):
        replay.replay(op, kind, ALL if kind in ("float64", "complex128") else frozenset())
    assert replay.counts["forward"] > 300
    assert not unexpected(replay, EXCEPTIONS)


@pytest.mark.filterwarnings("ignore")
def test_compiled(torch: ModuleType) -> None:
    replay = Replay(torch, 1)
    for op in replay.ops("float32"):
        if not draws_numbers(op):
            replay.replay(op, "float32", frozenset(("compiled",)))
    assert replay.counts["compiled"] > 300
    assert not unexpected(replay, EXCEPTIONS)
