"""Forks: one registry with a defined order, and what it does to each registered state."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import evergrad
from evergrad.core import fork

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, fork.Part]:
    """A registry of its own."""
    parts: dict[str, fork.Part] = {}
    monkeypatch.setattr(fork, "_parts", parts)
    return parts


def in_child_and_parent() -> tuple[list[str], list[str]]:
    """What a fork of this process has written in the child, and in the parent."""
    run: list[str] = []
    for name in ("thread pool", "imports", "compile workers"):  # not in their order
        fork.register(
            name,
            before=lambda name=name: run.append(f"before {name}"),
            after_in_parent=lambda name=name: run.append(f"parent {name}"),
            after_in_child=lambda name=name: run.append(f"child {name}"),
        )
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, "\n".join(run).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader) as found:
        return found.read().split("\n"), run


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_parts_are_held_from_last_to_first_and_released_from_first_to_last(
    registry: dict[str, fork.Part],
) -> None:
    child, parent = in_child_and_parent()
    before = ["before thread pool", "before compile workers", "before imports"]
    assert child == [*before, "child imports", "child compile workers", "child thread pool"]
    assert parent == [*before, "parent imports", "parent compile workers", "parent thread pool"]
    assert fork.registered() == ["imports", "compile workers", "thread pool"]


def test_a_part_without_a_place_is_refused(registry: dict[str, fork.Part]) -> None:
    with pytest.raises(ValueError, match="has no place"):
        fork.register("elsewhere")


def test_a_hook_that_fails_keeps_no_other_from_running(
    registry: dict[str, fork.Part], capsys: pytest.CaptureFixture[str]
) -> None:
    lock = threading.Lock()

    def fail() -> None:
        raise RuntimeError("no")

    fork.register("thread pool", before=fail)
    fork.register("imports", before=lock.acquire, after_in_parent=lock.release)
    fork._before()
    assert lock.locked()
    fork._after_in_parent()
    assert not lock.locked()
    assert "RuntimeError: no" in capsys.readouterr().err


def test_only_what_was_held_is_released(registry: dict[str, fork.Part]) -> None:
    released: list[str] = []
    fork._before()
    fork.register("imports", after_in_parent=lambda: released.append("imports"))
    fork._after_in_parent()
    fork._after_in_parent()  # without a fork
    assert not released


def test_nothing_else_registers_hooks_of_forks() -> None:
    root = Path(evergrad.__file__).parent
    users = [p for p in root.rglob("*.py") if "register_at_fork" in p.read_text()]
    assert users == [root / "core" / "fork.py"]


# Each state is made as if other threads were using it, and looked at in the child.
PROGRAM = """
import _imp, os, sys, threading, time
import numpy as np
import evergrad
from evergrad.compiler import api
from evergrad.compiler.native import compile_pool, jit
from evergrad.compiler.native.compile_pool import COMPILE_POOL
from evergrad.compiler.runtime import thread_pool
from evergrad.core import blas, fork
from evergrad.core.eager import parallel_ufunc
from evergrad.memory import ledger

assert fork.registered() == list(fork.ORDER), fork.registered()
evergrad.set_num_threads(2)

held, go_on = threading.Semaphore(0), threading.Event()
def hold(lock, seconds=None):
    def run():
        with lock:
            held.release()
            time.sleep(seconds) if seconds else go_on.wait()
    threading.Thread(target=run, daemon=True).start()
    held.acquire()

compile_pool.IDLE_SECONDS = 600.0  # on a busy machine a worker would exit meanwhile
thread_pool.thread_pool()
big = evergrad.ones(1 << 21)
big = big + big
COMPILE_POOL.compile("").result()
step = api.Compiled(lambda x: x + 1)
hold(step.step_lock)  # never released in the child
hold(jit._lock)
jit._requested.add("kernel")
jit._in_flight["file"] = None
before = (parallel_ufunc._workers, len(COMPILE_POOL.processes), len(thread_pool._pools))
assert all(before), before
hold(blas.several_threads, 0.3)  # a fork waits for these three
hold(ledger.LOCK, 0.3)
hold(COMPILE_POOL.condition, 0.3)

def is_free(lock):
    found = []
    def attempt():
        found.append(lock.acquire(blocking=False))
        if found[0]:
            lock.release()
    other = threading.Thread(target=attempt)
    other.start()
    other.join(5)
    return found == [True]

child = os.fork()
if child:
    _, status = os.waitpid(child, 0)
    assert (parallel_ufunc._workers, len(COMPILE_POOL.processes), len(thread_pool._pools)) == before
    assert jit._requested and jit._in_flight and not is_free(step.step_lock)
    assert is_free(blas.several_threads) and not _imp.lock_held()
    sys.exit(os.waitstatus_to_exitcode(status))

states = {
    "ledger": is_free(ledger.LOCK),
    "imports": not _imp.lock_held() and bool(__import__("evergrad.fft")),
    "blas threads": is_free(blas.several_threads),
    "parallel ufunc": parallel_ufunc._workers == 0 and parallel_ufunc._jobs.empty()
        and is_free(parallel_ufunc._starting),
    "compile workers": not COMPILE_POOL.processes and not COMPILE_POOL.jobs
        and not COMPILE_POOL.threads and is_free(COMPILE_POOL.condition),
    "compiled objects": not jit._requested and not jit._in_flight and is_free(jit._lock),
    "step locks": is_free(step.step_lock) and bool((step(evergrad.ones(9)) == 2).all()),
    "thread pool": not thread_pool._pools and is_free(thread_pool._made),
}
assert list(states) == list(fork.ORDER)
wrong = [name for name, is_right in states.items() if not is_right]
x = evergrad.ones(1 << 21)
if not bool(((x + x) == 2).all()) or evergrad.linalg.inv(evergrad.eye(300)).sum().item() != 300:
    wrong.append("results")
print(wrong, file=sys.stderr)
os._exit(len(wrong))
"""


@needs_fork
def test_each_state_in_a_forked_child(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROGRAM],
        capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == "[]"
