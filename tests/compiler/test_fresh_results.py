"""Results of calls on the fast path: tensors of their own, exact in the ledger; and the lock under
which a step runs."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.compiler.calls.call_path import NOT_HANDLED
from evergrad.core.state import STATE
from evergrad.memory.ledger import DATA, GRADIENT, LEDGER

from .steps import randn


class Counting:
    """A step that counts, whose calls take the fast path."""

    def __init__(self) -> None:
        self.total = eg.zeros(3)
        self.step = eg.compile(self.add)
        for _ in range(5):
            self.step(eg.ones(3))

    def add(self, x: Any) -> Any:
        self.total += x
        return self.total.sum()

    def call(self) -> Any:
        """A call that takes the fast path."""
        (serve,) = self.step.fast_paths.values()
        result = serve((eg.ones(3),), {}, STATE.get())
        assert result is not NOT_HANDLED
        return result


def test_results_that_are_kept_stay_as_they_are() -> None:
    counting = Counting()
    results = [counting.call() for _ in range(10)]
    assert [r.item() for r in results] == [3.0 * (6 + n) for n in range(10)]
    assert len({id(r._value) for r in results}) == 10


LOOKS = {
    "array": lambda result: result.numpy(),
    "detached": lambda result: result.detach(),
    "view": lambda result: result.reshape(1),
    "value": lambda result: result._value,
    "memory": lambda result: memoryview(result.numpy()),
    "used": lambda result: eg.ones((), requires_grad=True) * result,
}


@pytest.mark.parametrize("look", LOOKS)
def test_memory_that_somebody_looks_at_is_not_given_again(look: str) -> None:
    counting = Counting()
    looks = [LOOKS[look](counting.call()) for _ in range(4)]
    for _ in range(4):
        counting.call()
    found = [float(np.asarray(getattr(v, "_value", v)).reshape(-1)[0]) for v in looks]
    assert found == [18.0, 21.0, 24.0, 27.0]


CHANGES = {
    "written": lambda result: result.add_(100),
    "differentiated": lambda result: result.requires_grad_(),
    "shared": lambda result: result.numpy().fill(7),
    "attribute": lambda result: setattr(result, "note", 1),
    "saved": lambda result: (eg.ones((), requires_grad=True) * result).backward(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_result_is_always_as_new(change: str) -> None:
    counting = Counting()
    for n in range(6):
        result = counting.call()
        assert result.item() == 18.0 + 3 * n and result._version == 0
        assert not result.requires_grad and result.grad is None and not vars(result)
        assert result.is_leaf and result._base is None
        CHANGES[change](result)


def test_tensors_die_when_they_are_dropped() -> None:
    counting = Counting()
    result = counting.call()
    gone = weakref.ref(result)
    del result
    assert gone() is None


def test_the_ledger_stays_exact() -> None:
    counting, x = Counting(), eg.ones(3)

    def live() -> tuple[int, int]:
        return LEDGER.live, LEDGER.count

    gc.collect()
    before = live()
    for _ in range(3):
        for _ in range(100):
            counting.step(x)
            assert live() == before
        results = [counting.step(x) for _ in range(50)]
        assert live() == (before[0] + 50 * 4, before[1] + 50)
        del results
        assert live() == before


def test_the_peak_is_raised() -> None:
    counting, x = Counting(), eg.ones(3)
    gc.collect()
    eg.memory.reset_peak()
    counting.step(x)
    assert LEDGER.peak == LEDGER.live + 4


@pytest.mark.parametrize("category", [GRADIENT, DATA])
def test_categories_of_storages_that_are_freed(category: int) -> None:
    Counting()
    before = list(LEDGER.by_category), LEDGER.live
    tensor = eg.zeros(5)
    tensor._storage.tag(category)
    assert LEDGER.by_category[category] == before[0][category] + 20
    del tensor
    assert (list(LEDGER.by_category), LEDGER.live) == before


def test_who_observes_allocations_sees_every_result() -> None:
    counting = Counting()
    sizes: list[int] = []

    class Observer:
        def allocated(self, storage: Any) -> None:
            sizes.append(storage.nbytes)

        def freed(self, storage: Any) -> None: ...
        def held(self, nbytes: int) -> None: ...
        def used(self, nbytes: int) -> None: ...

    x = eg.ones(3)
    LEDGER.observer = Observer()
    try:
        for _ in range(5):
            counting.step(x)
    finally:
        LEDGER.observer = None
    assert sizes == [4] * 5


def test_versions_of_what_is_written() -> None:
    first, second, third = eg.zeros(2), eg.zeros(2), eg.zeros(2)

    @eg.compile
    def step(x: Any) -> Any:
        for tensor in (first, second, third):
            tensor.add_(x)
        return x.sum()

    x = eg.ones(2)
    for _ in range(4):
        step(x)
    second.mul_(1)
    before = [t._version for t in (first, second, third)]
    for _ in range(400):  # beyond the numbers that Python keeps
        step(x)
    assert [t._version - b for t, b in zip((first, second, third), before, strict=True)] == [
        400
    ] * 3


def test_several_results() -> None:
    @eg.compile
    def step(x: Any, y: Any) -> Any:
        return x + y, (x * y).sum(), x > y

    for seed in range(8):
        x, y = randn(2, 3, seed=seed), randn(2, 3, seed=seed + 50)
        total, product, greater = step(x, y)
        assert eg.equal(total, x + y) and eg.equal(greater, x > y)
        assert abs(product.item() - (x * y).sum().item()) < 1e-12
    kept = step(x, y)
    assert isinstance(kept, tuple) and len(kept) == 3


def test_gradients_that_stay_are_left_by_python() -> None:
    weight = eg.ones(3, requires_grad=True)

    @eg.compile
    def step(x: Any) -> Any:
        weight.grad = None
        loss = (weight * x).sum()
        loss.backward()
        return loss.detach()

    for n in range(1, 6):
        assert step(eg.full((3,), float(n))).item() == 3 * n
        assert weight.grad is not None and weight.grad.tolist() == [float(n)] * 3


def test_threads_that_share_a_step() -> None:
    """Whoever comes while a run goes on waits for its end; nothing is lost."""
    weight = eg.zeros(200, 200)

    @eg.compile
    def step(x: Any) -> Any:
        weight.add_(x @ x)
        return weight.max()

    eg.set_num_threads(1)
    x = eg.eye(200)
    for _ in range(4):
        step(x)
    before = weight._version

    def work() -> None:
        for _ in range(100):
            step(x)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert weight[0, 0].item() == 404 and weight._version - before == 400


# -- the lock -----------------------------------------------------------------------------------


def test_a_call_waits_for_the_lock_of_its_step() -> None:
    counting, found = Counting(), []
    thread = threading.Thread(target=lambda: found.append(counting.step(eg.ones(3)).item()))
    with counting.step.step_lock:
        thread.start()
        time.sleep(0.05)
        assert not found and counting.total.tolist() == [5.0] * 3
    thread.join(10)
    assert found == [18.0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_threads_that_are_gone() -> None:
    counting = Counting()
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with counting.step.step_lock:
            taken.set()
            done.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait(10)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if counting.step(eg.ones(3)).item() == 18.0 else 1)
    deadline = time.monotonic() + 20
    while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    done.set()
    thread.join(10)
    if ended[0] == 0:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert ended[0] == pid and os.waitstatus_to_exitcode(ended[1]) == 0


LAST = """
import sys
import numpy as np
import evergrad as eg

total = eg.zeros(3)

@eg.compile
def step(x):
    total.add_(x)
    return total.sum()

class Reuse:
    # Takes what memory was freed when the modules were, and writes to it.
    def __del__(self, full=np.full, taken=[]):
        for size in range(16, 1024, 16):
            taken += [full(size, 165, np.uint8) for _ in range(20)]

results = [step(eg.ones(3)) for _ in range(6)]
assert results[-1].item() == 18.0
# The last to be cleared, the list from its end.
sys.last = [results, eg.zeros(5), eg.nn.Linear(3, 3), Reuse()]
"""


def test_storages_that_outlive_all_modules() -> None:
    env = {**os.environ, "PYTHONMALLOC": "malloc", "MALLOC_PERTURB_": "165"}
    done = subprocess.run(
        [sys.executable, "-c", LAST], env=env, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupt_of_a_team_after_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run has happened, so the call has happened: what it wrote is counted."""
    eg.set_num_threads(2)
    weight = eg.zeros(300, 300)

    @eg.compile
    def step(x: Any) -> Any:
        weight.add_(x @ x)
        return weight.max()

    x = eg.eye(300)
    for _ in range(4):
        step(x)
    before = weight._version
    (variants,) = step.variants.values()
    (segment,) = variants[0].program.segments
    assert variants[0].program.threads > 1
    run = segment.run

    def interrupted(threads: int) -> int:
        run(threads)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(segment, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            step(x)
    assert weight[0, 0].item() == 5 and weight._version - before == 1
    assert step(x).item() == 6
