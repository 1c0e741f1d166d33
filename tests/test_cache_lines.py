"""Small arrays that share no cache line with anything else."""

from __future__ import annotations

import numpy as np
import pytest

from evergrad.memory.cache_lines import isolated_copy, isolated_zeros


def pairs_of_lines(array: np.ndarray) -> set[int]:
    start = array.ctypes.data
    return set(range(start // 128, (start + max(array.nbytes, 1) - 1) // 128 + 1))


def test_no_two_share_a_line() -> None:
    arrays = [isolated_zeros((n,), np.int8) for n in [1, 4, 64, 127, 128, 129, 500] * 20]
    lines = [line for array in arrays for line in pairs_of_lines(array)]
    assert len(lines) == len(set(lines))


def test_lines_are_wholly_inside_of_the_memory_they_were_taken_from() -> None:
    for size in (1, 100, 128, 1000):
        array = isolated_zeros((size,), np.uint8)
        memory = array.base
        assert memory is not None
        first, last = min(pairs_of_lines(array)), max(pairs_of_lines(array))
        assert first * 128 >= memory.ctypes.data
        assert (last + 1) * 128 <= memory.ctypes.data + memory.nbytes


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 5)])
def test_shapes_and_types(shape: tuple[int, ...]) -> None:
    for dtype in (np.int64, np.float32, np.dtype(np.float64)):
        array = isolated_zeros(shape, dtype)
        assert array.shape == shape and array.dtype == dtype and not array.any()
        array[...] = 3


def test_numbers_are_copied() -> None:
    rows = [(1, 2, 3), (4, 5, 6)]
    np.testing.assert_array_equal(isolated_copy(rows, np.int64), np.array(rows))
    assert isolated_copy([], np.int64).size == 0
