"""Threads that run tasks together: each task once, each wave after the one before."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.native import jit
from evergrad.compiler.runtime.thread_pool import Run, ThreadPool, thread_pool
from evergrad.compiler.schedule.instructions import Instruction
from evergrad.compiler.schedule.waves import task_order

# Adds one more than the sum of a row to an element of the next row, and sets the status word if
# there is one.
TEXT = """
define void @sum_and_one(ptr %args, i64 %chunk, ptr %scratch) {
entry:
  %row = load ptr, ptr %args
  %countp = getelementptr i64, ptr %args, i64 1
  %count = load i64, ptr %countp
  %statusp = getelementptr i64, ptr %args, i64 2
  %status = load ptr, ptr %statusp
  store i64 %chunk, ptr %scratch
  br label %loop
loop:
  %n = phi i64 [0, %entry], [%n1, %loop]
  %sum = phi i64 [1, %entry], [%sum1, %loop]
  %p = getelementptr i64, ptr %row, i64 %n
  %x = load i64, ptr %p
  %sum1 = add i64 %sum, %x
  %n1 = add i64 %n, 1
  %more = icmp ult i64 %n1, %count
  br i1 %more, label %loop, label %end
end:
  %own = load i64, ptr %scratch
  %at = add i64 %count, %own
  %out = getelementptr i64, ptr %row, i64 %at
  %old = load i64, ptr %out
  %new = add i64 %old, %sum1
  store i64 %new, ptr %out
  %fails = icmp ne ptr %status, null
  br i1 %fails, label %fail, label %done
fail:
  store atomic i64 1, ptr %status monotonic, align 8
  br label %done
done:
  ret void
}
"""

# Writes down in whose scratch memory a task ran, after a moment.
WHERE = """
define void @where(ptr %args, i64 %chunk, ptr %scratch) {
entry:
  %places = load ptr, ptr %args
  br label %loop
loop:
  %n = phi i64 [0, %entry], [%n1, %loop]
  store volatile i64 %n, ptr %scratch
  %n1 = add i64 %n, 1
  %more = icmp ult i64 %n1, 2000
  br i1 %more, label %loop, label %end
end:
  %p = getelementptr ptr, ptr %places, i64 %chunk
  store ptr %scratch, ptr %p
  ret void
}
"""


class Rows:
    """Rows of numbers, each made of the one before by a wave of tasks."""

    def __init__(self, rows: int, width: int, failing: int | None = None) -> None:
        address = jit.addresses_in(TEXT, ["sum_and_one"])["sum_and_one"]
        self.numbers = np.zeros((rows + 1, width), np.int64)
        self.status = np.zeros(8, np.int64)
        status = self.status.ctypes.data
        self.blocks = [
            np.array([self.numbers[n].ctypes.data, width, status if n == failing else 0])
            for n in range(rows)
        ]
        tasks = [(address, b.ctypes.data, chunk) for b in self.blocks for chunk in range(width)]
        ends = [width * (n + 1) for n in range(rows)]
        self.run = Run(tasks, ends, 64, self.status)

    def expected(self) -> Any:
        found = np.zeros_like(self.numbers)
        for n in range(1, len(found)):
            found[n] = found[n - 1].sum() + 1
        return found


def pool_of(size: int) -> ThreadPool:
    eg.set_num_threads(size)
    return thread_pool()


@pytest.mark.parametrize("size", [2, 3, 5])
def test_waves_follow_each_other(size: int) -> None:
    """Also with more threads than processors: some are never there in time."""
    rows, pool = Rows(6, 4), pool_of(size)
    rows.run.reserve_scratch(size)
    for _ in range(400):
        rows.numbers[:] = 0
        assert pool.run(rows.run.address) == 0
        np.testing.assert_array_equal(rows.numbers, rows.expected())
        assert rows.run.has_succeeded()


def test_parked_workers_are_woken() -> None:
    rows, pool = Rows(3, 40), pool_of(2)
    rows.run.reserve_scratch(2)
    for _ in range(5):
        time.sleep(0.01)
        rows.numbers[:] = 0
        pool.run(rows.run.address)
        np.testing.assert_array_equal(rows.numbers, rows.expected())


def test_two_runs_in_turns() -> None:
    """A worker that is late for one run finds the other."""
    both, pool = [Rows(1, 2), Rows(5, 3)], pool_of(3)
    for rows in both:
        rows.run.reserve_scratch(3)
    for _ in range(400):
        for rows in both:
            rows.numbers[:] = 0
            pool.run(rows.run.address)
        for rows in both:
            np.testing.assert_array_equal(rows.numbers, rows.expected())


def test_two_threads_begin_at_both_ends() -> None:
    """So each has the same part of rows in every wave."""
    count, pool = 40, pool_of(2)
    places = np.zeros(count, np.int64)
    args = np.array([places.ctypes.data], np.int64)
    address = jit.addresses_in(WHERE, ["where"])["where"]
    tasks = np.array([(address, args.ctypes.data, chunk) for chunk in range(count)], np.int64)
    run = Run(tasks, [count], 64, np.zeros(8, np.int64))
    run.reserve_scratch(2)
    together = 0
    for _ in range(2000):
        pool.run(run.address)
        ends = np.flatnonzero(np.diff(places))
        assert len(ends) <= 1
        assert places[0] == run.scratch.ctypes.data or not len(ends), "the caller has the front"
        together += len(ends)
        if together == 20:
            break
    assert together, "a worker took part"


def wave_of(*sizes: tuple[int, int]) -> list[Instruction]:
    """Instructions of so many chunks and so much work in each of them."""
    made = []
    for chunks, work in sizes:
        instruction = Instruction("")
        instruction.kernel = Kernel("", "")
        instruction.kernel.chunks = chunks
        instruction.work = chunks * work
        made.append(instruction)
    return made


def test_large_tasks_stand_at_the_ends_and_small_ones_where_threads_meet() -> None:
    order = task_order(wave_of((2, 1), (4, 100)))
    assert order == [(1, 0), (1, 1), (0, 0), (0, 1), (1, 2), (1, 3)]


def test_what_cannot_be_halved_goes_where_there_is_less() -> None:
    order = task_order(wave_of((3, 10), (1, 8), (1, 4), (1, 3)))
    front, back = order[:3], order[3:]
    assert front == [(0, 0), (0, 1), (3, 0)]
    assert back == [(2, 0), (1, 0), (0, 2)]
    assert sorted(task_order(wave_of((7, 3), (5, 2), (1, 9)))) == [
        *((0, n) for n in range(7)), *((1, n) for n in range(5)), (2, 0),
    ]  # fmt: skip


@pytest.mark.parametrize("way", ["alone", "alone without a GIL", "together"])
def test_nothing_runs_after_a_wave_that_failed(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "alone without a GIL":
        monkeypatch.setattr("evergrad.compiler.runtime.thread_pool._has_gil", lambda: False)
    rows, pool = Rows(4, 3, failing=1), pool_of(2)
    rows.run.reserve_scratch(2)
    run: Callable[[], int] = rows.run.run_serial
    if way == "together":
        run = lambda: pool.run(rows.run.address)
    for _ in range(50):
        rows.numbers[:] = 0
        rows.run.reset()
        assert run() == 1
        assert not rows.run.has_succeeded()
        np.testing.assert_array_equal(rows.numbers[1], rows.expected()[1])
        assert not rows.numbers[3:].any()


def test_one_thread_pool_and_several_callers() -> None:
    """A caller that does not acquire the pool runs serially."""
    eg.set_num_threads(2)
    found: list[bool] = []

    def work() -> None:
        rows = Rows(5, 3)
        for _ in range(300):
            rows.numbers[:] = 0
            rows.run.run(2)
            found.append(bool((rows.numbers == rows.expected()).all()))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 900


@pytest.mark.parametrize("size", [8, 2_000_000])
def test_all_threads_of_a_run_flush_where_one_thread_has_asked_for_it(size: int) -> None:
    x = eg.full((size,), 1e-20)
    compiled = eg.compile(lambda x: x * 1e-20)
    assert compiled(x).all()
    asked = threading.Thread(target=eg.set_flush_denormal, args=(True,))
    try:
        asked.start()
        asked.join()
        assert not compiled(x).any()
        after = np.full(4, 1e-20, np.float32) * np.float32(1e-20)
        assert after.all(), "what is set in a run is set back"
    finally:
        eg.set_flush_denormal(False)
    assert compiled(x).all()
