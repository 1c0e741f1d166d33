"""Several Python threads that run programs at the same time: they take turns with the GIL, nothing
is lost or mixed up, and nobody waits for one that does not come back."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import nn

from .steps import programs_of, randn

# The sizes of steps that take microseconds, less than a tenth of a millisecond, and more.
WIDTHS = {"brief": 3, "short": 40, "long": 160}


class Training:
    """A model with its compiled step, which has been traced."""

    def __init__(self, width: int) -> None:
        eg.manual_seed(width)
        self.model = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)).double()
        self.optimizer = eg.optim.SGD(self.model.parameters(), lr=0.01)
        self.x = randn(width, width)
        self.step = eg.compile(self.update)
        self.losses = [self.step(self.x).item() for _ in range(3)]

    def update(self, x: Any) -> Any:
        loss = (self.model(x) ** 2).mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            self.losses.append(self.step(self.x).item())

    def state(self) -> list[Any]:
        return [*self.losses, *(p.detach().numpy() for p in self.model.parameters())]


def assert_same(ours: Training, theirs: Training) -> None:
    for mine, other in zip(ours.state(), theirs.state(), strict=True):
        np.testing.assert_array_equal(mine, other)


def together(*works: Callable[[], object]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize("widths", [("brief",) * 2, ("brief",) * 5, ("short",) * 3,
                                    ("brief", "short", "long")])  # fmt: skip
def test_side_by_side_as_alone(widths: tuple[str, ...]) -> None:
    alone = {name: Training(WIDTHS[name]) for name in widths}
    for training in alone.values():
        training.go_on(200)
    trainings = [Training(WIDTHS[name]) for name in widths]
    together(*(lambda training=training: training.go_on(200) for training in trainings))
    for name, training in zip(widths, trainings, strict=True):
        assert_same(training, alone[name])


def test_side_by_side_without_a_gil(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code of free-threaded builds, which works elsewhere, too."""
    alone = Training(WIDTHS["short"])
    alone.go_on(100)
    monkeypatch.setattr("evergrad.compiler.runtime.thread_pool._has_gil", lambda: False)
    trainings = [Training(WIDTHS["short"]) for _ in range(3)]
    together(*(lambda training=training: training.go_on(100) for training in trainings))
    for training in trainings:
        assert_same(training, alone)


def test_lengths_are_what_they_are_called() -> None:
    lengths = []
    for width in WIDTHS.values():
        (segment,) = programs_of(Training(width).step)[-1].segments
        lengths.append(int(segment.words[7]))
    assert lengths == [2, 1, 0]


def python_alone() -> None:
    end = time.perf_counter() + 0.05
    while time.perf_counter() < end:
        pass


def failing_lookup(step: Any, table: Any) -> None:
    with pytest.raises(IndexError):
        step(table, eg.tensor([99]))


@pytest.mark.parametrize("where", ["sleeps", "is in Python", "fails", "is gone"])
def test_a_caller_that_goes_elsewhere(where: str) -> None:
    alone, ours, other = Training(3), Training(3), Training(3)
    alone.go_on(1000)
    look_up, table = eg.compile(lambda table, index: table[index] * 2), randn(4, 2)
    look_up(table, eg.tensor([1]))
    elsewhere: dict[str, Callable[[], object]] = {
        "sleeps": lambda: time.sleep(0.02), "is in Python": python_alone,
        "fails": lambda: failing_lookup(look_up, table), "is gone": lambda: None,
    }  # fmt: skip

    def wander() -> None:
        for _ in range(3):
            other.go_on(20)
            elsewhere[where]()

    together(lambda: ours.go_on(1000), wander)
    assert_same(ours, alone)
    alone = Training(3)
    alone.go_on(60)
    assert_same(other, alone)


def test_one_function_of_several_threads() -> None:
    alone, ours = Training(3), Training(3)
    alone.go_on(900)
    together(*[lambda: ours.go_on(300)] * 3)
    for mine, other in zip(ours.model.parameters(), alone.model.parameters(), strict=True):
        np.testing.assert_array_equal(mine.detach().numpy(), other.detach().numpy())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_goes_on_by_itself() -> None:
    ours, other, stop = Training(3), Training(3), threading.Event()
    pids: list[int] = []

    def run_until_forked() -> None:
        while not stop.is_set():
            other.step(other.x)

    def fork() -> None:
        ours.go_on(50)
        pid = os.fork()
        if pid == 0:
            ours.go_on(50)
            os._exit(0 if len(ours.losses) == 103 else 1)
        pids.append(pid)
        stop.set()

    together(fork, run_until_forked)
    _, status = os.waitpid(pids[0], 0)
    assert os.waitstatus_to_exitcode(status) == 0
