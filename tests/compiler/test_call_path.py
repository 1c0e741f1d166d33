"""The fast path of a call gives the same results and errors as the general path."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import nn
from evergrad.compiler.calls import call_path, native_run
from evergrad.compiler.calls.call_path import NOT_HANDLED
from evergrad.core.state import STATE
from evergrad.memory.ledger import LEDGER

from .steps import arrays, assert_alike, program_count, programs_of, randn


class Training:
    """A step that is one native run, with all that it changes."""

    def __init__(self, keep_grads: bool = False) -> None:
        eg.manual_seed(5)
        self.layer = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
        self.optimizer = eg.optim.SGD(self.layer.parameters(), lr=0.1, momentum=0.5)
        self.keep_grads = keep_grads

    def step(self, x: Any) -> Any:
        self.optimizer.zero_grad()
        loss = self.layer(x).square().mean()
        loss.backward()
        self.optimizer.step()
        if not self.keep_grads:
            self.optimizer.zero_grad()
        return loss.detach()

    def state(self) -> Any:
        parameters = list(self.layer.parameters())
        grads = [p.grad for p in parameters if p.grad is not None]
        return arrays([parameters, grads, self.optimizer.state_dict()["state"]])


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The results of the calls that took the fast path from now on."""
    found: list[Any] = []

    def noting(*given: Any) -> Any:
        serve = call_path.make_fast_path(*given)

        def noted(*call: Any) -> Any:
            result = serve(*call)
            if result is not NOT_HANDLED:
                found.append(result)
            return result

        return serve and noted

    monkeypatch.setattr("evergrad.compiler.api.make_fast_path", noting)
    return found


@pytest.mark.parametrize("keep_grads", [False, True])
def test_training_as_in_eager_mode(served: list[Any], keep_grads: bool) -> None:
    ours, theirs = Training(keep_grads), Training(keep_grads)
    step = eg.compile(ours.step)
    for n in range(12):
        for training in (ours, theirs):
            training.optimizer.param_groups[0]["lr"] = 0.1 if n < 6 else 0.01
        x = randn(5, 3, seed=n)
        assert_alike(step(x), theirs.step(x))
        assert_alike(ours.state(), theirs.state())
    assert len(served) >= 8


def test_results_are_tensors_of_their_own(served: list[Any]) -> None:
    """Small ones, which the program computes in its own memory, and large ones."""
    f = eg.compile(lambda x: (x.sum(), x * 2, x[0] + 1))
    xs = [randn(20, 30, seed=n) for n in range(6)]
    results = [f(x) for x in xs]
    assert len(served) == 5
    for x, result in zip(xs, results, strict=True):
        assert_alike(result, (x.sum(), x * 2, x[0] + 1))
    results[-1][0].add_(1)
    assert_alike(results[-2][0], xs[-2].sum())


def test_results_enter_the_ledger_and_leave_it() -> None:
    f = eg.compile(lambda x: x * 2)
    x = randn(40, 40)
    kept = [f(x) for _ in range(3)]
    before = LEDGER.live
    kept.append(f(x))
    assert LEDGER.live == before + x.nbytes
    del kept[-1]
    assert LEDGER.live == before


def test_arguments_of_all_kinds_in_turn(served: list[Any]) -> None:
    """Other arrays, views, transposed and empty tensors, other types, numbers, gradients."""
    f = eg.compile(lambda x, y: x * 2 + y)
    wide = randn(4, 8)
    pairs = [
        (randn(4, 4), randn(4, 4, seed=1)), (wide[:, :4], wide[:, 4:]),
        (wide[:, :4].t(), wide[0, :4]),
        (randn(4, 4).t(), randn(4, 4)), (randn(4, 4).float(), randn(4, 4).float()),
        (randn(0, 4), randn(0, 4)), (randn(4, 4), 3), (randn(4, 4), 0.5),
        (randn(4, 4).requires_grad_(), randn(4, 4)),
    ]  # fmt: skip
    for _ in range(3):
        for x, y in pairs:
            assert_alike(f(x, y), x * 2 + y)
            assert f(x, y).requires_grad == x.requires_grad
    assert len(served) > 20
    x = randn(4, 4)
    assert_alike(f(x, y=x), x * 3)
    assert_alike(f(x, x), x * 3)


def test_arguments_that_are_served() -> None:
    """Tensors of the same types without gradients, on memory that the program does not write."""
    written = eg.zeros(4, dtype=eg.float64)

    @eg.compile
    def step(x: Any, y: Any) -> Any:
        written.add_(y)
        return x.sum()

    x, y = randn(2, 3), randn(4)
    step(x, y)
    (serve,) = step.fast_paths.values()

    def is_served(*args: Any) -> bool:
        return serve(args, {}, STATE.get()) is not NOT_HANDLED

    whole = randn(8)
    views, strided = [whole[:4], whole[:4].detach()], [whole[::2], randn(4, 2)[:, 0]]
    assert all(is_served(x, other) for other in [y, randn(4, seed=2), *views])
    assert not is_served(x.T.contiguous().T, y)  # other strides
    for other in strided:
        assert not is_served(x, other)
        before = written.clone()
        assert_alike(step(x, other), x.sum())
        assert_alike(written, before + other)
    leaf, outdated = randn(4).requires_grad_(), whole[4:]
    whole.mul_(leaf.sum())
    others = [
        written, leaf, leaf * 2, leaf[:4], outdated, randn(4).float(), randn(5),
        eg.nn.Parameter(y), y.numpy(), 1.0, None,
    ]  # fmt: skip
    assert not any(is_served(x, other) for other in others)
    assert not is_served(x) and not is_served(x, y, y) and not is_served()


def test_sparse_tensors_of_the_same_shape(served: list[Any]) -> None:
    step = eg.compile(lambda x: x + x)
    x = randn(3, 3)
    for _ in range(3):
        assert_alike(step(x), x * 2)
    assert len(served) == 2
    with pytest.warns(RuntimeWarning, match="runs eagerly: an argument is sparse"):
        found = step(x.to_sparse())
    assert_alike(found.to_dense(), x * 2)
    assert_alike(step(x), x * 2)


def test_arguments_of_the_two_ways_in_turn(served: list[Any]) -> None:
    """Each way writes addresses for the other to find: those of a copy do not stay."""
    step, loops = eg.compile(lambda x: x * 2 + 1), 0
    xs = [randn(4, 4, seed=n) for n in range(3)]
    for n in range(12):
        x = xs[n % 3]
        for given in (x, x.T, x, x.T.contiguous()):
            assert_alike(step(given), given * 2 + 1)
        assert_alike(step(x=x), x * 2 + 1)
        if n % 4 == 3:
            rows = eg.stack(xs)
            assert_alike(step.loop(rows), rows * 2 + 1)
            loops += 1
        assert_alike(step(x), x * 2 + 1)
    assert loops == 3 and len(served) > 40


def test_a_fast_path_keeps_what_it_needs() -> None:
    compiled, x = eg.compile(lambda x: (x * 2).sum()), randn(3)
    expected = [compiled(x).item() for _ in range(3)][-1]
    (serve,) = compiled.fast_paths.values()
    del compiled
    gc.collect()
    assert serve((x,), {}, STATE.get()).item() == expected


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 5)])
@pytest.mark.parametrize("kind", ["float32", "float64", "bfloat16", "int64", "bool"])
def test_types_and_shapes(served: list[Any], kind: str, shape: tuple[int, ...]) -> None:
    def both(x: Any, y: Any) -> Any:
        return x | y if kind == "bool" else x * y, y == x

    compiled = eg.compile(both)
    for seed in range(4):
        x, y = ((randn(*shape, seed=s) * 3).to(getattr(eg, kind)) for s in (seed, seed + 9))
        for args in ((x, y), (y, x)):
            found, expected = compiled(*args), both(*args)
            assert [r.dtype for r in found] == [r.dtype for r in expected]
            assert all(eg.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert len(served) == 7


def test_a_view_of_what_asks_for_a_gradient_later(served: list[Any]) -> None:
    f = eg.compile(lambda x: x * 2)
    base = randn(3, 3)
    view = base[1:]
    for _ in range(3):
        assert not f(view).requires_grad
    base.mul_(randn(3, 3, seed=1).requires_grad_())
    assert view.requires_grad and f(view).requires_grad
    assert len(served) == 2


def test_modes_are_seen(served: list[Any]) -> None:
    layer = nn.Linear(3, 3)
    f, x = eg.compile(lambda x: (layer(x), eg.ones(1))), randn(2, 3).float()
    with eg.no_grad():
        for _ in range(3):
            assert not f(x)[0].requires_grad
        count = len(served)
        assert count == 2
        with eg.autocast("cpu"):
            assert f(x)[0].dtype is eg.bfloat16
    assert f(x)[0].requires_grad
    assert len(served) == count
    with eg.no_grad():
        f(x)
        eg.set_default_dtype(eg.float64)
        try:
            assert f(x)[1].dtype is eg.float64
        finally:
            eg.set_default_dtype(eg.float32)


def test_memory_that_is_written_is_no_argument(served: list[Any]) -> None:
    total = eg.zeros(3)

    @eg.compile
    def add(x: Any) -> Any:
        total.add_(1)
        return total + x

    for _ in range(3):
        add(eg.ones(3))
    version = total._version
    assert add(eg.ones(3)).tolist() == [5.0] * 3
    assert total._version == version + 1
    assert len(served) == 3
    assert add(total).tolist() == [10.0] * 3
    assert len(served) == 3


def test_it_uses_the_program_that_is_there_now(served: list[Any]) -> None:
    training = Training()
    step = eg.compile(training.step)
    x = randn(5, 3)
    for _ in range(4):
        step(x)
    twin = Training()
    for _ in range(4):
        twin.step(x)
    (variant,) = [v for variants in step.variants.values() for v in variants][-1:]
    variant.program.executable.lowering = None  # as if it came from the disk
    step.explain(x)
    for _ in range(3):
        step(x)
        twin.step(x)
    assert_alike(training.state(), twin.state())


@pytest.mark.parametrize("late", [False, True])
def test_an_interrupt_around_the_run(monkeypatch: pytest.MonkeyPatch, late: bool) -> None:
    ours, theirs = Training(keep_grads=True), Training(keep_grads=True)
    step, x = eg.compile(ours.step), randn(5, 3)
    for _ in range(4):
        step(x)
        theirs.step(x)
    program = programs_of(step)[-1]
    (segment,) = program.segments
    run, before = segment.run, ours.state()

    def interrupted(threads: int) -> int:
        if late:
            run(threads)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(segment, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            step(x)
    if late:
        theirs.step(x)
        assert_alike(ours.state(), theirs.state())
    else:
        assert_alike(ours.state(), before, 0)
    for training in (step, theirs.step):
        training(x)
    assert_alike(ours.state(), theirs.state())


@pytest.mark.parametrize("moment", [1, 3, 5])
def test_an_interrupt_while_results_are_made(
    monkeypatch: pytest.MonkeyPatch, served: list[Any], moment: int
) -> None:
    """The run has happened, so the call happens as a whole: gradients, too."""
    ours, theirs = Training(keep_grads=True), Training(keep_grads=True)
    step, x = eg.compile(ours.step), randn(5, 3)
    for _ in range(4):
        step(x)
        theirs.step(x)
    made, new_result = len(served), native_run.new_result
    held = [p.grad for p in ours.layer.parameters()]  # so that the gradients are new tensors
    calls: list[Any] = []

    def interrupted(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == moment:
            raise KeyboardInterrupt
        return new_result(*args)

    with monkeypatch.context() as patch:
        patch.setattr(native_run, "new_result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            step(x)
    assert len(served) == made and len(held) == 4
    theirs.step(x)
    assert_alike(ours.state(), theirs.state())
    assert_alike(step(x), theirs.step(x))
    assert len(served) == made + 1


def test_a_lookup_that_fails_and_one_that_does_not(served: list[Any]) -> None:
    table = eg.zeros(4, 2)

    @eg.compile
    def step(index: Any) -> Any:
        table.add_(1)
        return table[index]

    for _ in range(3):
        step(eg.tensor([1, 3]))
    with pytest.raises(IndexError, match=r"nothing was written(.|\n)*test_call_path"):
        step(eg.tensor([1, 4]))
    assert table.tolist() == [[3.0, 3.0]] * 4
    assert step(eg.tensor([0, 2])).tolist() == [[4.0, 4.0]] * 2
    assert len(served) == 3
    assert program_count(step) == 1


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_any_number_of_threads(threads: int) -> None:
    def function(x: Any) -> Any:
        return (x @ x).tanh().sum(0)

    eg.set_num_threads(threads)
    f = eg.compile(function)
    x = randn(200, 200)
    results = []
    for n in (1, threads, 1, threads):
        f(x)
        programs_of(f)[-1].threads = n
        results.append(f(x).numpy())
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


OLD_VALUES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "one": lambda x, w, s: (w.clone(), w.add_(x))[0],
    "two": lambda x, w, s: (w.clone(), s.clone(), w.add_(x), s.copy_(s + x))[:2],
    "with a scan": lambda x, w, s: (s.clone(), s.copy_(eg.cumsum(s + x, 0)))[0],
    "of another": lambda x, w, s: (s.clone(), s.copy_(eg.cumsum(x, 0)))[0],
    "a view": lambda x, w, s: (w[1:].clone(), w.mul_(2).add_(x))[0],
}


@pytest.mark.parametrize("name", OLD_VALUES)
def test_results_are_taken_before_late_writes(name: str) -> None:
    def started() -> Any:
        w, s = eg.zeros(4), eg.ones(4)
        return lambda x: OLD_VALUES[name](x, w, s)

    eager, single, looped = started(), eg.compile(started()), eg.compile(started())
    rows = eg.arange(20.0).reshape(5, 4)
    expected = [eager(row) for row in rows]
    for row, wanted in zip(rows, expected, strict=True):
        assert_alike(single(row), wanted)
    first = [looped(rows[0]), looped(rows[1])]
    rest = looped.loop(rows[2:])
    assert_alike(first, expected[:2])
    if isinstance(rest, tuple):
        assert_alike([list(r) for r in zip(*rest, strict=True)], [list(e) for e in expected[2:]])
    else:
        assert_alike(list(rest), expected[2:])


def test_records_and_containers_of_a_function_that_compares_identities(monkeypatch):
    """Such calls are guarded on the identity of their containers, and run by a fast path."""

    @dataclass(frozen=True)
    class Options:
        scale: float
        count: int

    known = {"x": eg.ones(3)}

    @eg.compile
    def step(batch, options, mask=None):
        is_known = batch is known
        return batch["x"] * options.scale + options.count, is_known, mask is None

    for n in range(4):
        step({"x": eg.ones(3)}, Options(0.5 * n, n))
    monkeypatch.setattr(type(step), "call_with", None)  # the general path
    for n in range(4, 8):
        found, is_known, has_none = step({"x": eg.full((3,), 2.0)}, Options(0.5 * n, n))
        assert found.tolist() == [2.0 * n] * 3 and not is_known and has_none
    monkeypatch.undo()
    assert step(known, Options(1.0, 2))[1] and not step(dict(known), Options(1.0, 2))[1]
