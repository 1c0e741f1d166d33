"""Results that are made natively: on arrays that were given before and that nobody has, and on new
ones otherwise; and storages that are made and freed natively."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.compiler.native.object_words import reference_count, times_taken
from evergrad.compiler.runtime import step_lock as turns_module
from evergrad.compiler.runtime.native_call import UNSERVED
from evergrad.compiler.runtime.step_lock import Turns
from evergrad.memory.ledger import DATA, GRADIENT, LEDGER

from .steps import randn


class Counting:
    """A step that counts, whose calls go the shortest way."""

    def __init__(self) -> None:
        self.total = eg.zeros(3)
        self.step = eg.compile(self.add)
        for _ in range(5):
            self.step(eg.ones(3))

    def add(self, x: Any) -> Any:
        self.total += x
        return self.total.sum()

    def call(self) -> Any:
        """A call that goes the shortest way."""
        result = self.step.quick((eg.ones(3),))
        assert result is not UNSERVED
        return result


def test_words_are_found() -> None:
    assert reference_count() is not None and times_taken() is not None


def test_results_take_turns_with_two_arrays() -> None:
    counting, seen, result = Counting(), [], None
    for n in range(6):
        result = counting.call()
        assert result.item() == 3.0 * (6 + n)
        seen.append(id(result._value))
    assert len(set(seen[2:])) == 2


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


def test_reference_counts_do_not_grow() -> None:
    counting, x = Counting(), eg.ones(3)
    storage = counting.total._storage
    things = [None, True, False, 0, x, storage, type(x), counting.call()._type, counting.step]
    counts = [sys.getrefcount(thing) for thing in things]
    for _ in range(1000):
        counting.step(x)
    assert all(sys.getrefcount(t) - n < 100 for t, n in zip(things, counts, strict=True))


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
    kept = step.quick((x, y))
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


# -- turns --------------------------------------------------------------------------------------


def test_who_takes_the_lock_waits_for_a_native_call() -> None:
    turns, entered = Turns(), []
    turns.busy[0] = 1

    def take() -> None:
        with turns:
            entered.append(True)

    thread = threading.Thread(target=take)
    thread.start()
    time.sleep(0.05)
    assert not entered
    turns.busy[0] = 0
    thread.join(10)
    assert entered and turns.lock.acquire(blocking=False)


def test_a_wait_that_is_interrupted_gives_the_lock_back(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()
    turns.busy[0] = 1

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(turns_module.time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt), turns:
        pass
    assert "count=0" in repr(turns.lock)


def test_a_native_call_gives_way_to_who_has_the_lock() -> None:
    counting, found = Counting(), []
    x = eg.ones(3)
    with counting.step.lock:
        thread = threading.Thread(target=lambda: found.append(counting.step.quick((x,))))
        thread.start()
        thread.join(10)
    assert found == [UNSERVED]
    counting.step.lock.busy[0] = 1
    assert counting.step.quick((x,)) is UNSERVED
    counting.step.lock.busy[0] = 0
    assert counting.call().item() == 18.0


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


def test_a_forked_child_has_no_turns_of_others() -> None:
    turns = Turns()
    turns.busy[0] = 1
    thread = threading.Thread(target=turns.lock.acquire)
    thread.start()
    thread.join()
    turns_module._forget_others()
    with turns:
        pass


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
            step.quick((x,))
    assert weight[0, 0].item() == 5 and weight._version - before == 1
    assert step.quick((x,)).item() == 6
