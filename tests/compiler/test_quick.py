"""Calls that are native until their run has ended, and what they consist of."""

from __future__ import annotations

import ctypes
import gc
import threading
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.compiler.native.object_words import array_flags, array_start, kind_word, slot_of
from evergrad.compiler.runtime.argument_blocks import fitting, telling
from evergrad.compiler.runtime.native_call import UNSERVED, quick_call
from evergrad.compiler.runtime.step_lock import Turns
from evergrad.core.state import STATE
from evergrad.core.tensor import Tensor, fresh

from .steps import randn

# -- words of objects ---------------------------------------------------------------------------


def word(thing: Any, distance: int) -> int:
    return int(ctypes.c_size_t.from_address(id(thing) + distance).value)


@pytest.mark.parametrize("name", ["_value", "_type", "_storage", "_node", "_grad"])
@pytest.mark.parametrize("kind", [Tensor, eg.nn.Parameter])
def test_slots_of_tensors(name: str, kind: Any) -> None:
    thing = kind(eg.zeros(3))
    assert word(thing, slot_of(Tensor, name)) == id(getattr(thing, name))
    assert word(thing, kind_word()) == id(kind)


@pytest.mark.parametrize(
    "array",
    [np.zeros(0), np.ones((3, 4)), np.ones((3, 4)).T, np.ones(9)[::2], np.broadcast_to(1, 4)],
)
def test_words_of_arrays(array: Any) -> None:
    assert word(array, array_start()) == array.ctypes.data
    assert word(array, array_flags()) & 0xFFFFFFFF == array.flags.num


# -- arguments ----------------------------------------------------------------------------------


def test_arguments_that_fit() -> None:
    x, y, written = randn(2, 3), randn(4), eg.zeros(4, dtype=eg.float64)
    fit = fitting([x, y], [written._storage])
    assert fit((x, y)) and fit((randn(2, 3, seed=1), randn(4, seed=2)))
    whole = randn(8)
    assert fit((x, whole[:4])) and fit((x, whole[:4].detach()))
    asking, outdated = randn(4).requires_grad_(), whole[4:]
    whole.mul_(asking.sum())
    others = [
        written, asking, asking * 2, asking[:4], outdated, randn(4).float(), randn(5),
        eg.nn.Parameter(y), y.numpy(), 1.0, None,
    ]  # fmt: skip
    assert not any(fit((x, other)) for other in others)
    assert not fit((x,)) and not fit((x, y, y)) and not fit(())


def test_kernels_are_told_of_arguments() -> None:
    words = np.zeros(6, np.int64)
    tell = telling([(7, 1), (9, 0), (8, 0)], {7: [(words.data, 0, 0), (words.data, 4, 16)],
                                              9: [(words.data, 2, 8)]})  # fmt: skip
    x, y = randn(2, 3), randn(4)
    assert tell((x, y))
    expected = [y.data_ptr(), 0, x.data_ptr() + 8, 0, y.data_ptr() + 16, 0]
    assert words.tolist() == expected
    assert not tell((randn(3, 2).T, y))
    assert not tell((fresh(np.zeros(6).view(np.recarray), x._type), y))  # an array of another class


# -- calls --------------------------------------------------------------------------------------


class Parts:
    """A call of which every part can be changed."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.lock = self.turns.lock
        self.current: list[Any] = [lambda: True]
        self.fits, self.told, self.status, self.ran, self.delivered = True, True, 0, 0, 0
        self.call = quick_call(
            STATE.get(), self.turns, lambda args: self.fits, self.current, lambda args: self.told,
            self.run, self.deliver,
        )  # fmt: skip

    def run(self) -> int:
        self.ran += 1
        return self.status

    def deliver(self) -> Any:
        if self.ran == 100:
            self.ran += 1
            raise ValueError("no result")
        self.delivered = self.ran
        return [self.ran]

    def is_free(self) -> bool:
        """Whether another thread could take the lock."""
        found: list[bool] = []
        thread = threading.Thread(target=lambda: found.append(self.lock.acquire(blocking=False)))
        thread.start()
        thread.join()
        return found[0]


def test_a_call_does_its_parts() -> None:
    parts = Parts()
    assert parts.call(()) == [1] and parts.call(()) == [2]
    assert parts.is_free()


@pytest.mark.parametrize("name", ["fits", "told"])
def test_what_does_not_fit_is_not_run(name: str) -> None:
    parts = Parts()
    setattr(parts, name, False)
    assert parts.call(()) is UNSERVED and parts.ran == 0 and parts.is_free()


def test_other_modes_and_conditions_go_another_way() -> None:
    parts = Parts()
    with eg.no_grad():
        assert parts.call(()) is UNSERVED
    parts.current[0] = lambda: False
    assert parts.call(()) is UNSERVED and parts.ran == 0 and parts.is_free()


def test_a_run_that_fails_goes_another_way() -> None:
    parts = Parts()
    parts.status = 5
    assert parts.call(()) is UNSERVED and parts.ran == 1 and parts.is_free()


def test_who_has_the_lock_is_not_disturbed() -> None:
    parts, results = Parts(), []
    with parts.lock:
        thread = threading.Thread(target=lambda: results.append(parts.call(())))
        thread.start()
        thread.join()
    assert results == [UNSERVED] and parts.ran == 0
    assert parts.call(()) == [1]


def test_a_native_call_that_goes_on_is_not_disturbed() -> None:
    """Another way of the same step may be native: then it has said so in the word alone."""
    parts = Parts()
    parts.turns.busy[0] = 1
    assert parts.call(()) is UNSERVED and parts.ran == 0
    parts.turns.busy[0] = 0
    assert parts.call(()) == [1] and parts.is_free()


def test_errors_are_raised_and_the_lock_given_back() -> None:
    parts = Parts()
    parts.current[0] = lambda: 1 // 0
    with pytest.raises(ZeroDivisionError):
        parts.call(())
    assert parts.ran == 0
    parts.current[0] = lambda: True
    parts.ran = 99
    with pytest.raises(ValueError, match="no result"):
        parts.call(())
    assert parts.delivered == 101, "what is left after a run is done also if it is interrupted"
    assert parts.is_free()


def test_a_call_keeps_what_it_needs() -> None:
    def step(x: Any) -> Any:
        return (x * 2).sum()

    compiled, x = eg.compile(step), randn(3)
    expected = [compiled(x).item() for _ in range(3)][-1]
    call = compiled.quick
    del compiled
    gc.collect()
    assert call((x,)).item() == expected


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 5)])
@pytest.mark.parametrize("kind", ["float32", "float64", "bfloat16", "int64", "bool"])
def test_types_and_shapes(kind: str, shape: tuple[int, ...]) -> None:
    def both(x: Any, y: Any) -> Any:
        return x | y if kind == "bool" else x * y, y == x

    compiled = eg.compile(both)
    for seed in range(4):
        x, y = ((randn(*shape, seed=s) * 3).to(getattr(eg, kind)) for s in (seed, seed + 9))
        for args in ((x, y), (y, x)):
            found, expected = compiled(*args), both(*args)
            assert [r.dtype for r in found] == [r.dtype for r in expected]
            assert all(eg.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert (compiled.quick((x, y)) is UNSERVED) == (shape == (0,))  # there is nothing to run
    assert compiled.quick((x, 1.0)) is UNSERVED
