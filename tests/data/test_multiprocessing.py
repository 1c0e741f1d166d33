"""``evergrad.multiprocessing``: Python's, with ``spawn`` and what it raises."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from types import ModuleType
from typing import Any

import pytest

import evergrad
import evergrad.multiprocessing as mp

forked = {"start_method": "fork"}


def test_it_offers_what_python_offers(torch: ModuleType) -> None:
    assert set(multiprocessing.__all__) <= set(mp.__all__)
    for name in multiprocessing.__all__:
        assert getattr(mp, name) == getattr(multiprocessing, name)
    for name in torch.multiprocessing.__all__:
        assert hasattr(mp, name), name
    assert mp.get_sharing_strategy() == torch.multiprocessing.get_sharing_strategy()


def test_sharing_strategies() -> None:
    mp.set_sharing_strategy("file_system")
    with pytest.raises(AssertionError, match="invalid sharing strategy"):
        mp.set_sharing_strategy("wrong")
    assert mp.get_sharing_strategy() in mp.get_all_sharing_strategies()


def put(index: int, queue: Any) -> None:
    queue.put((index, evergrad.full((1000,), float(index))))


def test_spawned_processes_send_tensors() -> None:
    queue = mp.get_context("spawn").Queue()
    mp.spawn(put, (queue,), nprocs=1)
    index, tensor = queue.get()
    assert index == 0 and tensor.sum() == 0
    queue.close()
    queue.join_thread()


def test_all_processes_run_and_are_joined() -> None:
    queue = multiprocessing.get_context("fork").SimpleQueue()
    mp.start_processes(put, (queue,), 3, **forked)
    assert sorted(queue.get()[0] for _ in range(3)) == [0, 1, 2]


def test_processes_that_are_not_joined() -> None:
    context = mp.start_processes(abs, (), 2, join=False, **forked)
    assert isinstance(context, mp.ProcessContext)
    assert len(context.pids()) == 2
    while not context.join():
        pass
    assert all(process.exitcode == 0 for process in context.processes)


def test_shared_tensors_are_seen_by_forked_processes() -> None:
    shared = evergrad.zeros(300, 300).share_memory_()

    def write(index: int) -> None:
        shared[index] = index + 1

    mp.start_processes(write, (), 2, **forked)
    assert shared[:3, 0].tolist() == [1, 2, 0]


def test_large_tensors_are_only_shared_when_asked() -> None:
    large = evergrad.zeros(300, 300)
    assert not large.is_shared()
    assert large.share_memory_().is_shared()


# -- failures -----------------------------------------------------------------------------------


def fail(index: int) -> None:
    if index == 1:
        raise ValueError("hm")
    time.sleep(60)


def leave(index: int) -> None:
    sys.exit(4)


def die(index: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def deep(index: int) -> None:
    raise ValueError("long " * 50_000 + "end")


@pytest.mark.parametrize(("function", "count"), [(fail, 2), (leave, 1), (die, 1)])
def test_failures_are_told_as_in_pytorch(function: Any, count: int, torch: ModuleType) -> None:
    found = []
    for library in (torch.multiprocessing, mp):
        with pytest.raises(Exception) as caught:
            library.start_processes(function, (), count, **forked)
        error: Any = caught.value
        lines = [line for line in str(error).splitlines() if "File" not in line]
        facts = {name: getattr(error, name, None) for name in ("exit_code", "signal_name")}
        found.append((type(error).__name__, lines[:3], lines[-1], error.error_index, facts))
        assert error.error_pid > 0
    assert found[0] == found[1]


def test_a_long_trace_is_cut_and_does_not_block() -> None:
    with pytest.raises(mp.ProcessRaisedException, match="long end"):
        mp.start_processes(deep, (), 1, **forked)


def test_another_start_method_for_spawn_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    monkeypatch.setattr(mp.processes, "start_processes", lambda *a, **k: started.append(k))
    with pytest.warns(FutureWarning, match="only supports start_method=spawn"):
        mp.spawn(fail, start_method="fork")
    assert started == [{"start_method": "spawn"}]


def test_a_function_that_cannot_be_sent_leaves_no_process() -> None:
    with pytest.raises(Exception, match=r"local object|pickle"):
        mp.spawn(lambda index: None, nprocs=2)
