"""Teams of threads that cannot be whole, and teams that change their size."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.compiler.native import compile_pool
from evergrad.compiler.runtime import thread_pool as thread_pools
from evergrad.compiler.runtime.thread_pool import ThreadPool, thread_pool
from evergrad.core.eager import parallel_ufunc

LARGE = 1 << 21


@pytest.fixture(autouse=True)
def few_threads() -> Iterator[None]:
    before = eg.get_num_threads()
    eg.set_num_threads(1)
    yield
    eg.set_num_threads(before)


def ours() -> list[str]:
    """The names of the threads of both teams."""
    names = [thread.name for thread in threading.enumerate()]
    return [n for n in names if n.startswith("evergrad-") and n != "evergrad-compile"]


def allow(monkeypatch: pytest.MonkeyPatch, count: int) -> list[str]:
    """Let only so many more threads start; gives the names of those that were refused."""
    start, refused = threading.Thread.start, []

    def limited(self: threading.Thread) -> None:
        nonlocal count
        if count <= 0 and self.name.startswith("evergrad-"):
            refused.append(self.name)
            raise RuntimeError("can't start new thread")
        count -= 1
        start(self)

    monkeypatch.setattr(threading.Thread, "start", limited)
    return refused


def programs() -> list[Any]:
    """A compiled step and an eager op, both large enough for threads."""
    x = eg.linspace(-3, 3, LARGE)
    step = eg.compile(lambda x: (x.tanh() * 2 + x.exp()).sum())
    return [step(x).item(), x.sin().sum().item(), (x + x).sum().item()]


@pytest.mark.parametrize("allowed", [0, 1, 2, 3])
def test_a_team_that_cannot_start_whole_runs_with_fewer(
    monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    expected = programs()
    refused = allow(monkeypatch, allowed)
    eg.set_num_threads(6)
    for _ in range(3):
        assert programs() == expected
    assert refused
    pool = thread_pool()
    assert pool.size <= 1 + allowed and len(ours()) <= allowed


def test_words_live_as_long_as_a_worker_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool whose third worker could not start is dropped at once: two workers run on."""
    allow(monkeypatch, 2)
    pool = ThreadPool(6)
    words, threads = weakref.ref(pool.words), pool.threads
    assert pool.size == 3 and words() is not None
    address = pool.address
    del pool
    gc.collect()
    assert words() is not None, "the workers still read the words"
    thread_pools.jit.function_of(thread_pools.native()["pool_end"], thread_pools.ctypes.c_void_p)(
        address
    )
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()


def test_back_and_forth_leaves_no_threads() -> None:
    expected = programs()
    for count in (4, 2, 1, 7, 3, 1, 5, 1):
        eg.set_num_threads(count)
        assert len(ours()) <= 2 * (count - 1)
        assert programs() == expected
        assert len(ours()) <= 2 * (count - 1)
    assert ours() == []
    for count in (4, 1) * 8:
        eg.set_num_threads(count)
        programs()
    assert ours() == []


def test_a_team_that_is_running_ends_after_its_run() -> None:
    eg.set_num_threads(3)
    programs()
    pool = thread_pool()
    assert pool.lock.acquire(blocking=False)
    eg.set_num_threads(1)
    assert all(thread.is_alive() for thread in pool.threads)
    pool.release()
    assert not any(thread.is_alive() for thread in pool.threads)
    assert not pool.try_acquire()  # whoever still has it runs serially


def test_resizing_while_other_threads_compute() -> None:
    expected, found, wrong = programs(), [], []
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            try:
                found.append(programs() == expected)
            except BaseException as error:
                wrong.append(error)
                return

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(60):
        eg.set_num_threads(1 + number % 4)
    stop.set()
    for thread in threads:
        thread.join(60)
    eg.set_num_threads(2)
    eg.set_num_threads(1)
    assert not wrong and found and all(found)
    assert ours() == []


def test_compile_threads_that_cannot_start_are_done_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = compile_pool.CompilePool(4)
    answers = [pool.compile(f"define i64 @f{n}() {{ ret i64 {n} }}") for n in range(2)]
    allow(monkeypatch, 0)
    answers += [pool.compile(f"define i64 @f{n}() {{ ret i64 {n} }}") for n in range(2, 6)]
    assert all(answer.result(60) for answer in answers)
    pool.close()


LIMITED = """
import resource, sys, threading
import evergrad as eg
x = eg.linspace(-3, 3, 1 << 21)
step = eg.compile(lambda x: (x.tanh() * 2 + x.exp()).sum())
eg.set_num_threads(1)
expected = step(x).item(), x.sin().sum().item()
# Threads that start need a stack: with so little address space left only a few do.
threading.stack_size(256 << 20)
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1200 << 20), resource.RLIM_INFINITY))
eg.set_num_threads(32)
for _ in range(5):
    assert (step(x).item(), x.sin().sum().item()) == expected
print(len(threading.enumerate()))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_a_system_without_room_for_threads() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert 1 <= int(done.stdout) < 16


def test_ufunc_workers_hold_no_arrays_while_idle() -> None:
    eg.set_num_threads(3)
    array = np.ones(LARGE, np.float32)
    parallel_ufunc.add_arrays(array, array, out=np.empty_like(array))
    watched = weakref.ref(array)
    del array
    for _ in range(100):
        if watched() is None:
            break
        threading.Event().wait(0.01)
    assert watched() is None
