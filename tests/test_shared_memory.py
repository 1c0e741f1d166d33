"""Writes from outside to memory that a graph has saved: what is detected, and what it costs."""

from __future__ import annotations

import ast
import ctypes
import gc
import threading
import time
import weakref
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import evergrad as eg
from evergrad.core import storage as storages
from evergrad.core.storage import checksum
from evergrad.errors import SavedValueError

LENGTHS = [1, 7, 100, 5000, 1 << 12, (1 << 12) + 1, 1 << 16, (1 << 16) + 77]


def some(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


@pytest.mark.parametrize("n", LENGTHS)
def test_every_single_change_is_detected(n: int) -> None:
    array = some(n)
    before = checksum(array)
    rng = np.random.default_rng(1)
    for at in {0, n - 1, n // 2, *rng.integers(0, n, 50).tolist()}:
        kept = array[at].copy()
        array.view(np.uint32)[at] ^= np.uint32(1 << int(rng.integers(32)))
        assert checksum(array) != before, at
        array[at] = kept
    assert checksum(array) == before


def _swap(array: np.ndarray) -> None:
    array[[0, -1]] = array[[-1, 0]]


CHANGES: list[Callable[[np.ndarray], object]] = [
    _swap, np.random.default_rng(3).shuffle, lambda a: a.sort(), lambda a: a.fill(0),
    lambda a: np.copyto(a, a[::-1].copy()), lambda a: np.multiply(a, 1.0000001, out=a),
    lambda a: np.copyto(a, np.roll(a, 128)), lambda a: np.copyto(a, np.roll(a, 64 * 128)),
    lambda a: np.copyto(a, np.nextafter(a, np.float32(9))), lambda a: np.negative(a, out=a),
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("n", [300, 1 << 16])
def test_changes_of_many_elements_are_detected(n: int, change: Callable[..., object]) -> None:
    array = some(n)
    x = eg.from_numpy(array).requires_grad_()
    y = (x * x).sum()
    change(array)
    with pytest.raises(SavedValueError, match="changed from outside"):
        y.backward()


def test_strided_memory_is_hashed_in_order() -> None:
    array = some(1 << 15).reshape(128, 256)
    assert checksum(array.T) == checksum(np.ascontiguousarray(array.T))
    assert checksum(array.T) != checksum(array)


def test_without_machine_code_it_is_a_crc(monkeypatch: pytest.MonkeyPatch) -> None:
    array = some(1 << 14)
    monkeypatch.setattr(storages, "_memory_hash", lambda: None)
    assert checksum(array) == zlib.crc32(array.data)


def test_the_door_decides_what_is_shared() -> None:
    """And nothing that happens later: reference counts differ between interpreters."""
    array = some(5000)
    for owned in (eg.tensor(array), eg.tensor(array.tolist()), eg.asarray(array, copy=True)):
        assert not owned._storage.shared
    for aliased in (eg.from_numpy(array), eg.as_tensor(array), eg.asarray(array)):
        assert aliased._storage.shared
    x = eg.from_numpy(some(5000)).requires_grad_()
    y = (x * x).sum()
    assert x._storage.shared
    y.backward()
    view = x.detach().numpy()
    z = (x * x).sum()
    view[3] += 1
    with pytest.raises(SavedValueError):
        z.backward()


def test_decisions_by_reference_counts_are_not_made() -> None:
    """They are wrong on CPython 3.14, which borrows references, and without a GIL."""
    names = {"getrefcount", "getweakrefcount"}
    for room in ("core", "memory", "ops"):
        for path in (Path(eg.__file__).parent / room).rglob("*.py"):
            nodes = ast.walk(ast.parse(path.read_text()))
            assert not any(isinstance(n, ast.Attribute) and n.attr in names for n in nodes), path


def test_an_array_that_only_another_thread_has() -> None:
    """The frame of a thread is the only one that knows the array, in a local name or a loop."""
    ready, write, written = threading.Event(), threading.Event(), threading.Event()
    given: list[eg.Tensor] = []

    def own() -> None:
        for array in [some(5000)]:
            given.append(eg.from_numpy(array).requires_grad_())
            ready.set()
            write.wait(60)
            array[17] += 1
        written.set()

    thread = threading.Thread(target=own)
    thread.start()
    ready.wait(60)
    x = given.pop()
    y = (x * x).sum()
    write.set()
    written.wait(60)
    thread.join()
    with pytest.raises(SavedValueError, match="changed from outside"):
        y.backward()


def test_addresses_are_references_too() -> None:
    """No count tells that a pointer was taken."""
    array = some(5000)
    pointer = array.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    x = eg.from_numpy(array).requires_grad_()
    del array
    y = (x * x).sum()
    pointer[1] = 3.0
    with pytest.raises(SavedValueError, match="changed from outside"):
        y.backward()


def test_an_export_after_the_save_is_sealed_then() -> None:
    x = eg.from_numpy(some(5000)).requires_grad_()
    y = (x * x).sum()
    array = x.detach().numpy()
    array[0] += 1
    with pytest.raises(SavedValueError):
        y.backward()


@pytest.mark.parametrize("hold", [
    lambda a: a, lambda a: a[1:], lambda a: a.reshape(50, 100).T, memoryview, weakref.ref,
    lambda a: eg.from_numpy(a), lambda a: eg.from_numpy(a).detach().numpy(),
])  # fmt: skip
def test_what_others_reference_stays_shared(hold: Callable[[np.ndarray], object]) -> None:
    array = some(5000)
    held = hold(array)
    x = eg.from_numpy(array).requires_grad_()
    if not isinstance(held, weakref.ref):
        del array
    (x * x).sum()
    assert x._storage.shared
    assert held is not None


def test_memory_that_nothing_can_write_needs_no_checksum() -> None:
    data = some(100).tobytes()
    locked = some(100)
    locked.flags.writeable = False
    for array in (np.frombuffer(data, np.float32), locked):
        with pytest.warns(UserWarning, match="not writable"):
            assert not eg.from_numpy(array)._storage.shared


def test_a_locked_view_of_writable_memory_is_shared() -> None:
    array = some(100)
    view = array[:]
    view.flags.writeable = False
    with pytest.warns(UserWarning, match="not writable"):
        x = eg.from_numpy(view).requires_grad_()
    y = (x * x).sum()
    array[5] = 7
    with pytest.raises(SavedValueError):
        y.backward()
    frozen = np.frombuffer(bytearray(array.tobytes()), np.float32)
    frozen.flags.writeable = False
    with pytest.warns(UserWarning, match="not writable"):
        assert eg.from_numpy(frozen)._storage.shared


def test_tensors_of_one_array_stay_shared() -> None:
    array = some(5000)
    first, second = (eg.from_numpy(array).requires_grad_() for _ in range(2))
    del array
    y = (first * first).sum()
    with eg.no_grad():
        second[0] = 9.0
    with pytest.raises(SavedValueError):
        y.backward()


def test_the_checksum_is_several_times_faster_than_a_crc() -> None:
    array = some(1 << 22)
    checksum(array)
    gc.collect()

    def least(function: Callable[[], object]) -> float:
        times = []
        for _ in range(7):
            start = time.process_time()
            function()
            times.append(time.process_time() - start)
        return min(times)

    assert least(lambda: checksum(array)) * 2 < least(lambda: zlib.crc32(array.data))
