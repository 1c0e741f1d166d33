"""Memory of a running program is held; memory of idle ones is given back; processes end at once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import memory
from evergrad.compiler import api
from evergrad.compiler.api import Compiled, PythonCall
from evergrad.compiler.runtime.thread_pool import Run
from evergrad.core.eager.fusion import eager_kernels, specializations_kept
from evergrad.core.eager.kernels import _kernels
from evergrad.core.op import TABLE
from evergrad.memory.ledger import LEDGER
from evergrad.nn import functional as F

from .shape_changes import train_with_changing_shapes

COUNT = 1 << 18

# What another thread may do to a tensor while a program reads it.
Attack = Callable[[Any], Any]
ATTACKS: dict[str, Attack] = {
    "resize larger": lambda x: x.resize_(3 * COUNT),
    "resize smaller": lambda x: x.resize_(2),
    "set": lambda x: x.set_(eg.zeros(COUNT)),
    "set shorter": lambda x: x.set_(eg.zeros(3)),
    "data": lambda x: setattr(x, "data", eg.zeros(COUNT)),
    "trim": lambda x: memory.trim(),
    "resize and trim": lambda x: (x.resize_(5), memory.trim()),
}


@pytest.fixture(autouse=True)
def poisoned() -> Iterator[None]:
    with memory.poison():
        yield


def overwrite_free_memory() -> None:
    """Use the memory that was released, so that a read of it shows."""
    for size in (COUNT, 3 * COUNT):
        for _ in range(3):
            eg.full((size,), float("nan"))


@pytest.mark.parametrize("where", ["argument", "captured"])
@pytest.mark.parametrize("name", ATTACKS)
def test_a_run_keeps_its_memory(name: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack comes when addresses are bound and the kernels are about to run."""
    captured, x = eg.full((COUNT,), 2.0), eg.full((COUNT,), 3.0)
    step = eg.compile(lambda x: (x * captured).sum())
    assert step(x).item() == step(x).item() == 6 * COUNT
    run, attacks = Run.run, []

    def attacked(self: Run, threads: int) -> int:
        if not attacks:
            attacks.append(name)
            try:
                ATTACKS[name](x if where == "argument" else captured)
            except RuntimeError:
                attacks.append("refused")
            overwrite_free_memory()
        return run(self, threads)

    monkeypatch.setattr(Run, "run", attacked)
    assert step(x).item() == 6 * COUNT
    assert attacks


@pytest.mark.parametrize("name", ATTACKS)
def test_calls_while_another_thread_changes_the_argument(name: str) -> None:
    """A call gives the sum of the tensor at some moment, or is refused."""
    step = eg.compile(lambda x: x.sum())
    x = eg.full((COUNT,), 3.0)
    step(x)
    allowed = {3.0 * COUNT, 0.0, 6.0, 9.0}
    stop, wrong = threading.Event(), []

    def attack() -> None:
        while not stop.is_set():
            try:
                ATTACKS[name](x)
                x.set_(eg.full((COUNT,), 3.0))
            except RuntimeError:
                pass

    other = threading.Thread(target=attack)
    other.start()
    try:
        for _ in range(60):
            try:
                found = step(x).item()
            except (RuntimeError, ValueError):
                continue
            if found not in allowed and not name.startswith("resize"):
                wrong.append(found)
    finally:
        stop.set()
        other.join(30)
    assert not wrong
    x = eg.full((COUNT,), 3.0)
    assert step(x).item() == 3 * COUNT


@pytest.mark.parametrize("name", ["resize smaller", "resize larger", "set shorter"])
def test_a_fast_path_has_the_signature_of_its_call(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The argument is given another shape when the run has ended, before its fast path is made."""
    step = eg.compile(lambda x: x.sum())
    made = api.make_fast_path

    def attacked(variant: Any, call: PythonCall) -> Any:
        ATTACKS[name](x)
        return made(variant, call)

    monkeypatch.setattr(api, "make_fast_path", attacked)
    x = eg.full((COUNT,), 3.0)
    assert step(x).item() == 3 * COUNT
    assert step(eg.ones(x.shape)).item() == x.numel()
    assert step(eg.full((COUNT,), 3.0)).item() == 3 * COUNT


def test_trim_in_another_thread_is_harmless() -> None:
    weight = eg.full((64, 64), 0.5)
    step = eg.compile(lambda x: (x @ weight).tanh().sum(), memory_limit=None)
    x = eg.ones(64, 64)
    expected = step(x).item()
    stop = threading.Event()

    def trim() -> None:
        while not stop.is_set():
            memory.trim()

    other = threading.Thread(target=trim)
    other.start()
    try:
        assert {step(x).item() for _ in range(40)} == {expected}
        scores = eg.ones(600, 700)
        assert {scores.softmax(1).sum().item() for _ in range(40)} == {
            scores.softmax(1).sum().item()
        }
    finally:
        stop.set()
        other.join(30)


def test_trim_gives_back_what_eager_caches_hold() -> None:
    with eager_kernels(least=1):
        for size in range(3, 12):
            x = eg.ones(size, 4, requires_grad=True)
            F.layer_norm(x, (4,)).sum().backward()
            x.softmax(1).sort()
        assert specializations_kept() and any(op.specializations for op in TABLE.values())
        memory.trim()
        assert not specializations_kept() and not _kernels
        assert not any(op.specializations for op in TABLE.values())
        x = eg.ones(5, 4)
        np.testing.assert_allclose(F.layer_norm(x, (4,)).numpy(), 0, atol=1e-5)


MANY = """
import sys, time
import evergrad as eg
def make(k):
    return lambda x: (x * k + 1.0).tanh().sum()
steps = []
for number in range(int(sys.argv[1])):
    step = eg.compile(make(float(number % 7)))
    step(eg.ones(3 + number % 1000))
    steps.append(step)
print(time.process_time(), time.time(), flush=True)
"""


def ending(count: int, folder: str) -> tuple[float, float]:
    """Seconds of processor and of the clock from the last line of a process with so many programs
    to its end."""
    process = subprocess.Popen(
        [sys.executable, "-c", MANY, str(count)],
        env={**os.environ, "EVERGRAD_KERNEL_CACHE": folder}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        printed = process.stdout.read()
        # Of this process alone: others of the tests may end meanwhile.
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    ended = time.time()
    assert process.returncode == 0
    spent, last_line = map(float, printed.split())
    return usage.ru_utime + usage.ru_stime - spent, ended - last_line


def test_a_process_with_many_programs_ends_at_once(tmp_path: Any) -> None:
    """The long version, with 3,000, is in tests/soak. The second process compiles nothing, so its
    processor time has no workers in it."""
    ending(300, str(tmp_path))
    assert ending(300, str(tmp_path))[0] < 0.6


def test_steps_with_changing_shapes_leave_nothing() -> None:
    """The long version, with 100,000 steps, is in tests/soak."""
    live = train_with_changing_shapes(steps=400, shapes=6)
    assert len(live) >= 10 and len(set(live[1:])) == 1


def test_an_argument_resized_before_it_is_traced_makes_no_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the program for the new type would serve later calls with the former one."""
    x, run_observed, attacks = eg.full((8,), 3.0), Compiled.run_observed, []

    def attacked(self: Any, *args: Any) -> Any:
        if not attacks:
            attacks.append(x.resize_(2))
        return run_observed(self, *args)

    monkeypatch.setattr(Compiled, "run_observed", attacked)
    step = eg.compile(lambda x: x.sum())
    with pytest.warns(RuntimeWarning, match="a tensor was resized"):
        assert step(x).item() == 6
    assert step.last_call.kind == "segments" and not step.variants
    assert step(eg.full((8,), 3.0)).item() == 24
    assert step(eg.full((2,), 3.0)).item() == 6


# -- compiled functions are freed by reference counts -------------------------------------------


def _closure() -> Callable[..., Any]:
    kept = eg.zeros(100)
    return lambda x: x + kept


def _written() -> Callable[..., Any]:
    kept = eg.zeros(100)
    return lambda x: kept.add_(x).sum()


def _module() -> Callable[..., Any]:
    layer = eg.nn.Linear(100, 3)
    return lambda x: layer(x)


def _training() -> Callable[..., Any]:
    layer = eg.nn.Linear(100, 3)
    optimizer = eg.optim.Adam(layer.parameters(), lr=0.1)

    def step(x: eg.Tensor) -> eg.Tensor:
        loss = layer(x).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def _method() -> Callable[..., Any]:
    class Average:
        def __init__(self) -> None:
            self.value = eg.zeros(100)

        def update(self, x: eg.Tensor) -> eg.Tensor:
            return (self.value * x).sum()

    return Average().update


@pytest.mark.parametrize("made", [_closure, _written, _module, _training, _method])
def test_a_compiled_function_is_freed_by_reference_counts(
    made: Callable[[], Callable[..., Any]], collector_off: None
) -> None:
    """Also after guards were evaluated again because something else had changed."""

    def use() -> None:
        compiled = eg.compile(made())
        for number in range(4):
            compiled(eg.ones(100))
            if number == 2:
                eg.nn.Linear(1, 1).eval()  # counted as a mutation of modules

    use()
    before = LEDGER.live, LEDGER.count
    use()
    assert (LEDGER.live, LEDGER.count) == before
