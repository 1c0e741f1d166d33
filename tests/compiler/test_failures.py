"""What goes wrong in or around a compiled function leaves nothing half-done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import evergrad as eg
from evergrad import nn

from .steps import arrays, assert_alike, program_count, randn

linux = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")


class Lookup:
    """A step that looks rows up, with everything it changes."""

    def __init__(self) -> None:
        self.table, self.layer = nn.Embedding(5, 3).double(), nn.Linear(3, 2).double()
        self.parameters = [*self.table.parameters(), *self.layer.parameters()]
        self.optimizer = eg.optim.Adam(self.parameters, lr=0.1)

    def step(self, index: Any) -> Any:
        self.optimizer.zero_grad()
        loss = self.layer(self.table(index)).square().sum()
        loss.backward()
        self.optimizer.step()
        return loss

    def all(self) -> Any:
        grads = [p.grad for p in self.parameters if p.grad is not None]
        return self.parameters, grads, self.optimizer.state_dict()["state"]


@pytest.mark.parametrize("bad", [[0, 5, 1], [-1, 0, 0], [10**12, 0, 0]])
def test_an_index_out_of_range(bad: list[int]) -> None:
    model = Lookup()
    compiled = eg.compile(model.step)
    for index in ([0, 4, 2], [1, 1, 3]):
        compiled(eg.tensor(index))
    before = arrays(model.all())
    with pytest.raises(IndexError, match="out of range"):
        compiled(eg.tensor(bad))
    assert_alike(model.all(), before, 0)
    compiled(eg.tensor([0, 4, 2]))


LOOKUPS: dict[str, Callable[[Any, Any], Any]] = {
    "gather": lambda x, index: x.gather(1, index[:, None]),
    "one_hot": lambda x, index: nn.functional.one_hot(index, 5) * 2,
    "index": lambda x, index: x[index],
    "index_select": lambda x, index: x.index_select(1, index),
    "take": lambda x, index: x.take(index * 5),
    "scatter": lambda x, index: x.scatter(1, index[:, None], 1.0),
    "cross_entropy": lambda x, index: nn.functional.cross_entropy(x, index),
    "embedding": lambda x, index: nn.functional.embedding(index, x),
}


@pytest.mark.parametrize("bad", [5, -6])
@pytest.mark.parametrize("name", LOOKUPS)
def test_lookups_fail_with_the_class_of_eager_mode(name: str, bad: int) -> None:
    function = LOOKUPS[name]
    compiled, x = eg.compile(function), randn(5, 5)
    for index in ([0, 1, 4, 2, 3], [4, 4, 0, 0, 1]):
        assert_alike(compiled(x, eg.tensor(index)), function(x, eg.tensor(index)))
    wrong = eg.tensor([0, 1, bad, 2, 3])
    with pytest.raises((IndexError, RuntimeError)) as eager:
        function(x, wrong)
    with pytest.raises(eager.type):
        compiled(x, wrong)
    assert program_count(compiled) == 1


class OwnError(Exception):
    pass


class Failing:
    """A step of Adam that raises behind its writes if it is to."""

    def __init__(self) -> None:
        eg.manual_seed(2)
        self.layer = nn.Linear(3, 3).double()
        self.optimizer = eg.optim.Adam(self.layer.parameters(), lr=0.1)

    def step(self, x: Any, fail: bool) -> Any:
        loss = self.layer(x).square().sum()
        loss.backward()
        self.optimizer.step()
        if fail:
            raise OwnError
        return loss.detach()

    def state(self) -> Any:
        grads = [p.grad for p in self.layer.parameters()]
        return arrays([[*self.layer.parameters()], grads, self.optimizer.state_dict()["state"]])


@pytest.mark.parametrize("stepped_before", [False, True])
def test_an_exception_of_the_function_leaves_what_eager_code_leaves(stepped_before: bool) -> None:
    ours, theirs = Failing(), Failing()
    compiled = eg.compile(ours.step)
    if stepped_before:
        for _ in range(3):
            assert_alike(compiled(randn(2, 3), False), theirs.step(randn(2, 3), False))
    for seed in range(2):
        for step in (compiled, theirs.step):
            with pytest.raises(OwnError):
                step(randn(2, 3, seed=seed), True)
        assert_alike(ours.state(), theirs.state())
    for seed in range(3):
        x = randn(2, 3, seed=seed)
        assert_alike(compiled(x, False), theirs.step(x, False))
        assert compiled.last_call.kind == "whole"
        assert_alike(ours.state(), theirs.state())


READS: dict[str, Callable[[Any], Any]] = {
    "text": lambda x: f"{x.sum().item():.3f}", "numpy": lambda x: x.numpy(),
}  # fmt: skip
DECISIONS: dict[str, Callable[[Any], Any]] = {
    "item": lambda x: round(x.sum().item(), 3) > 0, "int": lambda x: int(x[0]),
    "bool": lambda x: bool(x[0] > 0), "tolist": lambda x: x.tolist()[0] > 0,
    "mask": lambda x: x[x > 0], "nonzero": lambda x: x.nonzero(),
}  # fmt: skip


@pytest.mark.parametrize("name", DECISIONS)
def test_decisions_by_the_data(name: str) -> None:
    read = DECISIONS[name]

    def function(x: Any) -> Any:
        y = x * 2
        found = read(y)
        return y + 1, found

    with pytest.raises(eg.errors.TraceError, match="traced") as raised:
        eg.compile(function, fullgraph=True)(randn(3))
    assert "test_failures.py" in str(raised.value)
    compiled = eg.compile(function)
    for seed in (0, 1, 2, 0, 1, 2):
        x = randn(3, seed=seed)
        assert_alike(compiled(x), function(x))
        assert compiled.last_call.kind == "whole" and len(compiled.last_call.breaks) == 1
        assert "test_failures.py" in compiled.last_call.breaks[0]


@pytest.mark.parametrize("name", READS)
def test_values_that_python_reads(name: str) -> None:
    read = READS[name]

    def function(x: Any) -> Any:
        y = x * 2
        found = read(y)
        return y + 1, found

    with pytest.raises(eg.errors.TraceError, match="traced") as raised:
        eg.compile(function, fullgraph=True)(randn(3))
    assert "test_failures.py" in str(raised.value)
    compiled = eg.compile(function)
    with pytest.warns(RuntimeWarning, match="not one compiled program"):
        compiled(randn(3))
    for seed in range(3):
        x = randn(3, seed=seed)
        assert_alike(compiled(x), function(x))
        assert compiled.last_call.kind == "segments" and len(compiled.last_call.breaks) >= 1
        assert "test_failures.py" in compiled.last_call.breaks[0]
    assert program_count(compiled) == 0


def test_an_outside_tensor_that_is_read_by_python_and_by_ops() -> None:
    scale = eg.tensor(2.0)

    def function(x: Any) -> Any:
        y = x * scale
        return y * scale.item()

    compiled, x = eg.compile(function, fullgraph=True), randn(3).float()
    for factor in (2.0, 3.0, 0.5):
        scale.fill_(factor)
        assert_alike(compiled(x), function(x), 1e-6)
        assert compiled.last_call.kind == "whole"


def test_a_tensor_kept_by_python_is_an_ordinary_one() -> None:
    kept: list[Any] = []

    def function(x: Any) -> Any:
        kept.append(x * 2)
        return list(kept)[-1] + 1

    whole = eg.compile(function, fullgraph=True)
    whole(randn(3))
    with pytest.raises(eg.errors.TraceError, match="changed by the function itself"):
        whole(randn(3))
    assert len(kept) == 1
    kept.clear()
    compiled = eg.compile(function)
    compiled(randn(3))
    with pytest.warns(RuntimeWarning, match="kept .*is changed by the function itself"):
        compiled(randn(3, seed=1))
    for seed in range(2, 4):
        assert_alike(compiled(randn(3, seed=seed)), randn(3, seed=seed) * 2 + 1)
    assert len(kept) == 4 and compiled.last_call.kind == "traced"
    for seed, tensor in enumerate(kept):
        assert_alike([tensor.sum(), tensor + 1], [(randn(3, seed=seed) * 2).sum(),
                                                  randn(3, seed=seed) * 2 + 1])  # fmt: skip


def test_seeds_that_are_set_inside() -> None:
    def function(x: Any) -> Any:
        eg.manual_seed(0)
        return x + eg.rand(3)

    compiled = eg.compile(function, fullgraph=True)
    for seed in range(3):
        expected, after = function(randn(3, seed=seed)), eg.rand(2)
        assert_alike(compiled(randn(3, seed=seed)), expected)
        assert_alike(eg.rand(2), after, 0)
    with pytest.raises(eg.errors.TraceError, match=r"seed\(\)"):
        eg.compile(lambda x: x + eg.seed(), fullgraph=True)(randn(3))


# -- threads, processes, signals ------------------------------------------------------------------


def test_many_python_threads() -> None:
    """One function from all threads, and two at once; large enough for the thread pool."""
    layer = nn.Linear(60, 60).double()
    functions = [lambda x: layer(x).tanh().sum(0), lambda x: layer(x).sigmoid().exp().sum(1)]
    compiled = [eg.compile(f) for f in functions]
    inputs = [randn(80, 60, seed=n) for n in range(4)]
    expected = [[arrays(f(x)) for x in inputs] for f in functions]
    failures: list[BaseException] = []

    def work(first: int) -> None:
        try:
            for round in range(25):
                n = (round + first) % len(inputs)
                for f, values in zip(compiled, expected, strict=True):
                    assert_alike(f(inputs[n]), values[n])
        except BaseException as error:
            failures.append(error)

    eg.set_num_threads(2)
    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert [program_count(f) for f in compiled] == [1, 1]


def test_one_training_step_from_two_threads() -> None:
    """Calls come one after the other: no update is lost."""
    weight = eg.zeros(3)

    @eg.compile
    def step(x: Any) -> None:
        weight.add_(x)

    threads = [
        threading.Thread(target=lambda: [step(eg.ones(3)) for _ in range(200)]) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert weight.tolist() == [600.0] * 3


def test_two_models_in_two_threads() -> None:
    """Each caller may find the thread pool taken by the other; the numbers are the same."""

    def train(seed: int, rounds: int) -> Any:
        weight = randn(300, 300, seed=seed) * 0.01

        @eg.compile
        def step(x: Any) -> None:
            weight.add_((x @ weight).tanh() * 1e-3)

        for _ in range(rounds):
            step(randn(300, 300))
        return weight

    eg.set_num_threads(2)
    expected = [arrays(train(seed, 12)) for seed in (1, 2)]
    found: dict[int, Any] = {}
    threads = [
        threading.Thread(target=lambda seed=seed: found.update({seed: train(seed, 12)}))
        for seed in (1, 2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, values in zip((1, 2), expected, strict=True):
        assert_alike(found[seed], values, 0)


@linux
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_runs_compiled_code() -> None:
    eg.set_num_threads(2)
    x = randn(300, 300)
    compiled = eg.compile(lambda x: (x @ x).tanh().sum())
    expected = compiled(x).item()
    child = os.fork()
    if child == 0:
        try:
            same = compiled(x).item() == expected
            more = eg.compile(lambda x: x.square().sum())(x).item() > 0
            os._exit(0 if same and more else 1)
        except BaseException:
            os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert compiled(x).item() == expected


INTERRUPTED = """
import evergrad as eg
weight, count = eg.zeros(400, 400), eg.zeros(())
@eg.compile
def step(x):
    weight.add_((x @ x).tanh() * 0 + 1)
    count.add_(1)
step(eg.zeros(400, 400))
try:
    print("ready", flush=True)
    while True:
        step(eg.zeros(400, 400))
except KeyboardInterrupt:
    same = bool((weight == count).all())
    step(eg.zeros(400, 400))
    print("consistent" if same and bool((weight == count).all()) else "torn", flush=True)
"""


@linux
def test_an_interrupt_ends_a_loop_of_steps() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        try:
            assert process.stdout.readline() == "consistent\n"
            assert process.wait(20) == 0
        finally:
            process.kill()


@pytest.mark.filterwarnings("ignore:.*is not one compiled program:RuntimeWarning")
@pytest.mark.parametrize("name", ["type", "float", "id"])
def test_no_name_of_a_builtin_function_stays_in_the_module(name: str) -> None:
    """Stand-ins of functions of numbers are taken back where the function has raised, too."""
    call = {"type": _class_of, "float": _float_of, "id": _identity_of}[name]
    seen: list[Any] = []

    def step(x: Any, k: int, r: float) -> Any:
        seen.append(call(r))
        return x * (1.0 / (k % 3))

    compiled = eg.compile(step)
    for n in range(7):
        try:
            compiled(eg.ones(3), n, 0.25 * n + 0.5)
        except ZeroDivisionError:
            assert n % 3 == 0
        assert name not in globals()
    if name != "id":
        assert seen == [call(0.25 * n + 0.5) for n in range(7)]


def _class_of(number: object) -> str:
    return type(number).__name__


def _float_of(number: float) -> float:
    return float(number) + 1


def _identity_of(number: object) -> int:
    return id(number) * 0
