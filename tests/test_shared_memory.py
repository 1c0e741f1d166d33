"""Writes from outside to memory that a graph has saved: what is detected, and what it costs."""

from __future__ import annotations

import gc
import time
import weakref
import zlib
from collections.abc import Callable

import numpy as np
import pytest

import evergrad as eg
from evergrad.core import storage as storages
from evergrad.core.storage import ADOPTED, EXPORTED, UNSHARED, checksum
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


def test_an_array_that_was_handed_over_is_not_shared() -> None:
    x = eg.from_numpy(some(5000)).requires_grad_()
    assert x._storage.shared == ADOPTED
    y = (x * x).sum()
    assert x._storage.shared == UNSHARED
    y.backward()
    view = x.detach().numpy()  # now it is shared again
    assert x._storage.shared == EXPORTED
    z = (x * x).sum()
    view[3] += 1
    with pytest.raises(SavedValueError):
        z.backward()


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
    assert x._storage.shared == ADOPTED
    assert held is not None


def test_memory_that_nothing_can_write_needs_no_checksum() -> None:
    data = some(100).tobytes()
    locked = some(100)
    locked.flags.writeable = False
    for array in (np.frombuffer(data, np.float32), locked):
        with pytest.warns(UserWarning, match="not writable"):
            assert eg.from_numpy(array)._storage.shared == UNSHARED


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
        assert eg.from_numpy(frozen)._storage.shared == ADOPTED


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
