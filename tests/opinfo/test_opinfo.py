"""The ops of PyTorch's database give PyTorch's results: a few samples of each; more in tests/soak.

What differs is in :mod:`.exceptions`, with reasons.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from .exceptions import EXCEPTIONS
from .replay import Replay

ALL = frozenset(("gradient", "out", "in-place"))
TYPES = ["float32", "bfloat16", "int64", "bool", "complex64", "complex128"]


@pytest.fixture(scope="module")
def one_thread(torch: ModuleType) -> ModuleType:
    torch.set_num_threads(1)
    return torch


def unexpected(replay: Replay, allowed: dict[str, str]) -> str:
    lines = [
        f"{name}: {text}"
        for name, texts in replay.failures.items()
        if name not in allowed
        for text in texts
    ]
    return "\n".join(lines)


def draws_numbers(op: Any) -> bool:
    """Whether an op sets its seed itself, which is a side effect when it is compiled."""
    return "wrapper_set_seed" in getattr(getattr(op.op, "__code__", None), "co_names", ())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(4))
def test_float64(one_thread: ModuleType, part: int) -> None:
    """Values, first and second derivatives, ``out=`` and in-place forms."""
    replay = Replay(one_thread, 1)
    for op in replay.ops("float64", every=4, first=part):
        replay.replay(op, "float64", ALL)
    assert replay.counts["forward"] > 100 and replay.counts["gradient"] > 80
    assert not unexpected(replay, EXCEPTIONS)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", TYPES)
def test_other_types(one_thread: ModuleType, kind: str) -> None:
    """Values in other element types, of every sixth op."""
    replay = Replay(one_thread, 1)
    for op in replay.ops(kind, every=6, first=TYPES.index(kind)):
        replay.replay(op, kind, frozenset())
    assert not unexpected(replay, EXCEPTIONS)


@pytest.mark.filterwarnings("ignore")
def test_errors(one_thread: ModuleType) -> None:
    """What PyTorch refuses is refused with the same class of error: without an exception."""
    replay = Replay(one_thread, 1)
    for op in replay.ops("float32"):
        replay.errors(op)
    assert replay.counts["error"] > 500
    assert not unexpected(replay, {})


@pytest.mark.filterwarnings("ignore")
def test_compiled(one_thread: ModuleType) -> None:
    """Compiled, every fifteenth op."""
    replay = Replay(one_thread, 1)
    for op in replay.ops("float32", every=15, first=7):
        if not draws_numbers(op):
            replay.replay(op, "float32", frozenset(("compiled",)))
    assert replay.counts["compiled"] > 20
    assert not unexpected(replay, EXCEPTIONS)


def test_the_list_of_exceptions_is_short() -> None:
    assert len(EXCEPTIONS) <= 30
