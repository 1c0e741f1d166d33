"""Threads: any number of them build and differentiate graphs at once, as if each were alone."""

from __future__ import annotations

import contextvars
import gc
import importlib
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import memory
from evergrad.autograd import Function
from evergrad.core.state import State
from evergrad.core.storage import Storage
from evergrad.core.thread_variable import ThreadVariable
from evergrad.memory.ledger import LEDGER
from storages import all_storages

THREADS = 6


@pytest.fixture(autouse=True)
def switching_often() -> Iterator[None]:
    gc.collect()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def run_at_once(work: Callable[[int], Any], count: int = THREADS) -> list[Any]:
    """The results of ``work(0), work(1), ...``, run in threads that start together."""
    barrier = threading.Barrier(count)

    def start(number: int) -> Any:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(start, range(count)))


def assert_ledger_exact(before: tuple[int, int]) -> None:
    gc.collect()
    assert (LEDGER.live, LEDGER.count) == before
    storages = all_storages()
    assert sum(s.nbytes for s in storages) == LEDGER.live
    assert len(storages) == LEDGER.count


class Model:
    """Small enough that threads meet often, with something of everything."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.rng = rng
        self.parameters = [
            eg.tensor(rng.standard_normal(shape).astype(np.float32)).requires_grad_()
            for shape in [(6, 9), (9,), (9, 4)]
        ]

    def step(self) -> float:
        w, b, v = self.parameters
        x = eg.tensor(self.rng.standard_normal((5, 6)).astype(np.float32))
        hidden = (x @ w + b).tanh()
        hidden = eg.cat([hidden[:2] * 2, hidden[2:].exp()])
        loss = (hidden @ v).log_softmax(1)[:, 1].mean().neg() + 0.01 * (v * v).sum()
        loss.backward()
        with eg.no_grad():
            for p in self.parameters:
                p -= 0.1 * p.grad
                p.grad = None
        return float(loss.item())


def train(seed: int, steps: int = 40) -> list[Any]:
    model = Model(seed)
    losses = [model.step() for _ in range(steps)]
    return [losses, *(p.detach().numpy().copy() for p in model.parameters)]


def assert_identical(ours: list[Any], theirs: list[Any]) -> None:
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


def test_models_train_at_once_bitwise_as_alone() -> None:
    before = LEDGER.live, LEDGER.count
    alone = [train(seed) for seed in range(THREADS)]
    together = run_at_once(train)
    for a, b in zip(alone, together, strict=True):
        assert_identical(a, b)
    assert_ledger_exact(before)


def test_large_models_too_which_share_the_pool() -> None:
    def work(seed: int) -> list[Any]:
        rng = np.random.default_rng(seed)
        w = eg.tensor(rng.standard_normal((200, 200)).astype(np.float32) * 0.05).requires_grad_()
        x = eg.tensor(rng.standard_normal((300, 200)).astype(np.float32))
        for _ in range(6):
            ((x @ w).tanh() * x).sum().backward()
            with eg.no_grad():
                w -= 0.001 * w.grad
            w.grad = None
        return [w.detach().numpy().copy()]

    before = LEDGER.live, LEDGER.count
    alone = [work(seed) for seed in range(4)]
    for a, b in zip(alone, run_at_once(work, 4), strict=True):
        assert_identical(a, b)
    assert_ledger_exact(before)


def test_in_a_poisoned_pool_too() -> None:
    with memory.poison():
        pass  # forgets the specializations of earlier tests, and what these hold
    memory.trim()
    gc.collect()  # what exceptions of earlier tests hold
    before = LEDGER.live, LEDGER.count
    alone = [train(seed, 8) for seed in range(THREADS)]
    with memory.poison():
        together = run_at_once(lambda seed: train(seed, 8))
    for a, b in zip(alone, together, strict=True):
        assert_identical(a, b)
    assert_ledger_exact(before)


def test_shared_weights_that_are_only_read() -> None:
    """Each thread has its own head on a common body, and its own gradients of the head."""
    rng = np.random.default_rng(0)
    body = eg.tensor(rng.standard_normal((6, 8))).requires_grad_()

    def work(seed: int) -> Any:
        own = np.random.default_rng(seed)
        head = eg.tensor(own.standard_normal((8, 3))).requires_grad_()
        x = eg.tensor(own.standard_normal((4, 6)))
        for _ in range(30):
            loss = ((x @ body).tanh() @ head).square().sum()
            (g,) = eg.autograd.grad(loss, head)
            with eg.no_grad():
                head -= 0.01 * g
        return [head.detach().numpy().copy()]

    alone = [work(seed) for seed in range(THREADS)]
    together = run_at_once(work)
    for a, b in zip(alone, together, strict=True):
        assert_identical(a, b)
    assert body.grad is None and body._version == 0


def test_one_graph_differentiated_by_several_threads() -> None:
    x = eg.linspace(0.1, 1, 20, dtype=eg.float64).requires_grad_()
    y = x.exp().sin()

    def work(number: int) -> Any:
        weight = eg.full((20,), float(number + 1), dtype=eg.float64)
        return [
            eg.autograd.grad(y, x, weight, retain_graph=True)[0].numpy() / (number + 1)
            for _ in range(20)
        ]

    first, *rest = [g for found in run_at_once(work) for g in found]
    for other in rest:
        np.testing.assert_allclose(other, first, rtol=1e-14)


# -- nested ---------------------------------------------------------------------------------------


class Inner(Function):
    """Runs a backward of its own inside its backward."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        with eg.enable_grad():
            probe = x.detach().requires_grad_()
            (probe**3).sum().backward()
        return g * probe.grad


def nested(seed: int) -> Any:
    x = eg.linspace(0.5, 2, 7, dtype=eg.float64).requires_grad_()
    seen = []

    def hook(grad: Any) -> Any:
        with eg.enable_grad():
            w = grad.detach().requires_grad_()
            Inner.apply(w).sum().backward()
        seen.append(w.grad.numpy().copy())
        return grad + 0 * w.grad

    for _ in range(10):
        y = Inner.apply(x) * (seed + 1)
        y.register_hook(hook)
        (y * y).sum().backward()
    return [x.grad.numpy().copy(), *seen]


def test_backward_inside_hooks_and_functions() -> None:
    x = np.linspace(0.5, 2, 7)
    found = nested(0)
    np.testing.assert_allclose(found[0], 10 * 6 * x**5)
    np.testing.assert_allclose(found[1], 3 * (2 * x**3) ** 2)
    before = LEDGER.live, LEDGER.count
    alone = [nested(seed) for seed in range(THREADS)]
    for a, b in zip(alone, run_at_once(nested), strict=True):
        assert_identical(a, b)
    del alone
    assert_ledger_exact(before)


def test_backward_in_a_thread_started_by_a_hook() -> None:
    x = eg.ones(3).requires_grad_()
    found: list[Any] = []

    def elsewhere() -> None:
        w = eg.ones(3).requires_grad_()  # gradients are on here, though off in the hook
        (w * 2).sum().backward()
        found.append(w.grad.tolist())

    def hook(grad: Any) -> None:
        assert not eg.is_grad_enabled()
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()

    y = x * 3
    y.register_hook(hook)
    y.sum().backward()
    assert found == [[2.0, 2.0, 2.0]] and x.grad.tolist() == [3.0, 3.0, 3.0]


# -- modes ----------------------------------------------------------------------------------------


def test_modes_do_not_leak_between_threads() -> None:
    def work(number: int) -> list[bool]:
        seen = []
        for _ in range(200):
            seen.append(eg.is_grad_enabled())
            with eg.set_grad_enabled(number % 2 == 0):
                seen.append(eg.is_grad_enabled() == (number % 2 == 0))
                x = eg.ones(2).requires_grad_()
                seen.append((x * 2).requires_grad == (number % 2 == 0))
        return seen

    with eg.no_grad():
        assert all(all(seen) for seen in run_at_once(work))
        assert not eg.is_grad_enabled()
    assert eg.is_grad_enabled()


def test_a_new_thread_starts_with_gradients_on() -> None:
    seen: list[bool] = []
    with eg.no_grad():
        thread = threading.Thread(target=lambda: seen.append(eg.is_grad_enabled()))
        thread.start()
        thread.join()
        contextvars.copy_context().run(lambda: seen.append(eg.is_grad_enabled()))
    assert seen == [True, False]  # a copied context is the same place, not a new one


def test_tracing_in_one_thread_is_unseen_by_others() -> None:
    def work(number: int) -> Any:
        a = eg.linspace(0.1, 1, 5, dtype=eg.float64)
        for _ in range(5):
            if number % 2:
                result = eg.func.hessian(lambda x: (x**3).sum())(a).diagonal()
            else:
                result = a.clone()
                for _ in range(20):
                    result = (a * 6) + 0 * result
        return result.numpy()

    for result in run_at_once(work):
        np.testing.assert_allclose(result, 6 * np.linspace(0.1, 1, 5))


# -- accounts -------------------------------------------------------------------------------------


def test_counts_are_exact_under_contention() -> None:
    before = LEDGER.live, LEDGER.count

    def work(number: int) -> None:
        held: list[Any] = []
        for i in range(3000):
            held.append(Storage(None, None, (i * 7 + number) % 100))  # type: ignore[arg-type]
            held[-1].tag(i % 6)
            if i % 3 == 0:
                held[-1].resize(i % 50)
            if len(held) > 20:
                del held[::2]

    categories = dict(LEDGER.categories())
    run_at_once(work)
    assert (LEDGER.live, LEDGER.count) == before
    assert LEDGER.categories() == categories


def test_a_tracker_sees_all_threads() -> None:
    with memory.track() as tracker:
        run_at_once(lambda number: [train(number, 5) and None for _ in range(2)])
    gc.collect()
    assert sum(e.nbytes for e in tracker.timeline if e.kind in ("alloc", "free")) == 0
    assert not tracker.alive
    assert {"tanh", "matmul"} <= set(tracker.by_op())
    assert tracker.peak >= tracker.live_at_start


def test_trackers_of_several_threads() -> None:
    def work(number: int) -> int:
        for _ in range(20):
            with memory.track() as tracker:
                eg.ones(number + 1) * 2
        return len(tracker.timeline)

    assert all(count >= 4 for count in run_at_once(work))
    assert LEDGER.observer is None


# -- forks ---------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_fork_while_another_thread_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child finds whole modules, and locks that it can take."""
    names = [f"imported_late_{number}" for number in range(5)]
    for name in names:
        (tmp_path / f"{name}.py").write_text("import time\ntime.sleep(0.05)\nvalue = 3\n")
    monkeypatch.setattr(eg, "__path__", [*eg.__path__, str(tmp_path)])

    def import_all() -> int:
        return sum(importlib.import_module(f"evergrad.{name}").value for name in names)

    thread = threading.Thread(target=import_all)
    thread.start()
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=lambda: os._exit(import_all())) for _ in names]
    for child in children:
        child.start()
    thread.join()
    for child in children:
        child.join(30)
        child.kill()  # one that waits forever
        child.join()
    assert [child.exitcode for child in children] == [15] * 5


FORKING = """
import os, sys, threading, time
import evergrad
import logging  # its hook of forks is registered now, unless the engine did so first

evergrad.__path__.append(sys.argv[1])
thread = threading.Thread(target=lambda: __import__("evergrad.imported_late"))
thread.start()
time.sleep(0.3)
child = os.fork()
if not child:
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
thread.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_fork_while_another_thread_imports_what_logs(tmp_path: Path) -> None:
    """The fork held the lock of logging and waited for the import, which waited for that lock."""
    late = "import logging, time\ntime.sleep(1)\nlogging.getLogger('late')\n"
    (tmp_path / "imported_late.py").write_text(late)
    command = [sys.executable, "-W", "ignore", "-c", FORKING, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "7\n"


def test_a_thread_that_starts_in_a_copy_of_its_parents_context() -> None:
    """As threads do on free-threaded interpreters, where the plain variable is not used."""
    variable = ThreadVariable("state of the test", State())
    off = State().replace(grad=False)
    token = variable.set(off)
    seen: list[Any] = []

    def look() -> None:
        seen.append(variable.get().grad)
        variable.set(off)
        seen.append(variable.get().grad)

    for run in (contextvars.copy_context().run, lambda f: f()):
        thread = threading.Thread(target=run, args=(look,))
        thread.start()
        thread.join()
    assert seen == [True, False] * 2
    assert contextvars.copy_context().run(variable.get) is off
    variable.reset(token)
    assert variable.get().grad
