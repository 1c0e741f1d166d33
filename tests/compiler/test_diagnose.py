"""What fails leaves everything as it was, and says where it failed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import nn
from evergrad.compiler.runtime import arena as arena_module
from evergrad.compiler.runtime import program as program_module
from evergrad.compiler.runtime.thread_pool import Run
from evergrad.errors import NonFiniteError, TraceError

from .steps import arrays, assert_alike, lowered_programs_of, programs_of, randn

GOOD = np.array([[4.0, 1.0], [1.0, 3.0]])
BAD = np.array([[1.0, 2.0], [2.0, 1.0]])  # has no Cholesky factor


class State:
    """A parameter, a buffer and the random stream, and what they were."""

    def __init__(self) -> None:
        eg.manual_seed(3)
        self.weight = randn(4, 2, seed=1).requires_grad_()
        self.count = eg.zeros(())

    def now(self) -> Any:
        return arrays([self.weight, self.weight.grad, self.count]), eg.get_rng_state().tolist()


def line_of(function: Callable[..., Any], offset: int) -> str:
    return f"test_diagnose.py:{function.__code__.co_firstlineno + offset}"


# -- failing steps ------------------------------------------------------------------------------


def write_then_call(state: State) -> Callable[[Any], Any]:
    def step(matrix: Any) -> Any:
        with eg.no_grad():
            state.count.add_(1)
            state.weight.mul_(eg.rand(4, 2))
        return eg.linalg.cholesky(matrix).sum()

    return step


@pytest.mark.parametrize("threads", (1, 2))
def test_a_failing_call_after_a_write(threads: int) -> None:
    eg.set_num_threads(threads)
    state = State()
    step = eg.compile(write_then_call(state))
    step(eg.tensor(GOOD))
    before = state.now()
    with pytest.raises(RuntimeError) as caught:
        step(eg.tensor(BAD))
    assert _same(state.now(), before)
    assert any("test_diagnose.py" in note and "cholesky" in note for note in caught.value.__notes__)
    step(eg.tensor(GOOD))
    assert float(state.count) == 2.0
    assert not _same(state.now(), before)


def _same(one: Any, other: Any) -> bool:
    return one[1] == other[1] and all(
        np.array_equal(a, b) for a, b in zip(one[0], other[0], strict=True)
    )


def test_a_failing_call_at_the_first_run() -> None:
    state = State()
    before = state.now()
    with pytest.raises(RuntimeError):
        eg.compile(write_then_call(state))(eg.tensor(BAD))
    assert _same(state.now(), before)


def test_the_steps_after_a_failed_one_are_those_without_it() -> None:
    ours, theirs = State(), State()
    compiled, eager = eg.compile(write_then_call(ours)), write_then_call(theirs)
    eg.manual_seed(5)
    for matrix in (GOOD, BAD, GOOD):
        if matrix is BAD:
            with pytest.raises(RuntimeError):
                compiled(eg.tensor(matrix))
        else:
            compiled(eg.tensor(matrix))
    eg.manual_seed(5)
    for _ in range(2):
        eager(eg.tensor(GOOD))
    assert_alike([ours.weight, ours.count], [theirs.weight, theirs.count])


def test_without_anything_that_may_fail_values_are_computed_in_place() -> None:
    weight = randn(3, 4)
    step = eg.compile(lambda x: weight.add_(x))
    step(eg.ones(3, 4, dtype=eg.float64))
    (program,) = lowered_programs_of(step)
    assert [i.node is None for i in program.instructions] == [False]
    assert program.plan.peak == 0


def lookup_after_write(weight: Any, table: Any) -> Callable[[Any], Any]:
    def step(places: Any) -> Any:
        with eg.no_grad():
            weight.mul_(2.0)
        return nn.functional.embedding(places, table).sum()

    return step


@pytest.mark.parametrize("threads", (1, 2))
def test_an_index_out_of_range_after_a_write(threads: int) -> None:
    eg.set_num_threads(threads)
    weight, table = eg.ones(100_000), randn(5, 64)
    function = lookup_after_write(weight, table)
    step = eg.compile(function)
    step(eg.arange(5).repeat(2000))
    for program in programs_of(step):
        program.threads = threads
    with pytest.raises(IndexError) as caught:
        step(eg.full((10_000,), 5))
    assert line_of(function, 3) in str(caught.value)
    assert float(weight.min()) == float(weight.max()) == 2.0
    step(eg.arange(5).repeat(2000))
    assert float(weight.min()) == float(weight.max()) == 4.0


def test_writes_wait_for_lookups_beside_them() -> None:
    weight, table = eg.ones(100), randn(5, 64)

    def step(places: Any) -> Any:
        found = nn.functional.embedding(places, table)
        weight.mul_(2.0)
        return found

    compiled = eg.compile(step)
    compiled(eg.arange(5))
    (program,) = programs_of(compiled)
    lookup, write = program.waves
    assert [i.may_fail for i in lookup] == [True]
    assert [b.kind for i in write for b in i.writes] == ["outside"]


class Classifier:
    """Embedding, dropout, a layer, Adam."""

    def __init__(self) -> None:
        eg.manual_seed(0)
        self.table, self.out = nn.Embedding(7, 8), nn.Linear(8, 3)
        self.optimizer = eg.optim.Adam([*self.table.parameters(), *self.out.parameters()], lr=0.1)

    def step(self, places: Any, labels: Any) -> Any:
        self.optimizer.zero_grad()
        hidden = nn.functional.dropout(self.table(places), 0.2)
        loss = nn.functional.cross_entropy(self.out(hidden), labels)
        loss.backward()
        self.optimizer.step()
        return loss

    def state(self) -> list[Any]:
        parameters = self.optimizer.param_groups[0]["params"]
        grads = [p.grad for p in parameters]
        return arrays([parameters, grads, [dict(s) for s in self.optimizer.state.values()]])


@pytest.mark.parametrize(("places", "labels"), [([1, 7], [0, 1]), ([1, 2], [0, 3])])
def test_a_training_step_with_a_bad_index(places: list[int], labels: list[int]) -> None:
    model = Classifier()
    step = eg.compile(model.step)
    good = eg.tensor([1, 6]), eg.tensor([0, 2])
    for _ in range(2):
        step(*good)
    before, stream = model.state(), eg.get_rng_state().tolist()
    with pytest.raises(IndexError, match=r"nothing was written"):
        step(eg.tensor(places), eg.tensor(labels))
    for a, b in zip(model.state(), before, strict=True):
        np.testing.assert_array_equal(a, b)
    assert eg.get_rng_state().tolist() == stream
    step(*good)


def interrupt(patch: pytest.MonkeyPatch, program: Any, number: int, late: bool) -> None:
    """Have a program interrupted before or after it runs a segment."""
    segment = program.segments[number]
    owner, name = (segment, "run") if isinstance(segment, Run) else (program, "python_call")
    run = getattr(owner, name)

    def interrupted(given: Any) -> Any:
        here = owner is segment or given is segment
        result = run(given) if late or not here else None
        if here:
            raise KeyboardInterrupt
        return result

    patch.setattr(owner, name, interrupted)


def test_an_interrupt_between_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    state = State()
    step = eg.compile(write_then_call(state))
    step(eg.tensor(GOOD))
    (program,) = programs_of(step)
    before = state.now()
    final = len(program.segments) - 1
    assert final >= 2  # random numbers and the factor are calls
    for number, late in [*itertools.product(range(final), (False, True)), (final, False)]:
        with monkeypatch.context() as patch:
            interrupt(patch, program, number, late)
            with pytest.raises(KeyboardInterrupt):
                step(eg.tensor(GOOD))
        assert _same(state.now(), before)


@pytest.mark.parametrize("late", (False, True))
def test_an_interrupt_around_the_kernels_that_write(
    monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    ours, theirs = Classifier(), Classifier()
    step = eg.compile(ours.step)
    given = eg.tensor([1, 6]), eg.tensor([0, 2])
    for function in (step, theirs.step):
        eg.manual_seed(1)
        function(*given)
        function(*given)
    program = programs_of(step)[-1]
    before, stream = ours.state(), eg.get_rng_state().tolist()
    with monkeypatch.context() as patch:
        interrupt(patch, program, -1, late)
        with pytest.raises(KeyboardInterrupt):
            step(*given)
    if not late:
        assert eg.get_rng_state().tolist() == stream
        assert_alike(ours.state(), before, tolerance=0.0)
        return
    after = eg.get_rng_state().tolist()
    eg.set_rng_state(eg.tensor(stream, dtype=eg.uint8))
    theirs.step(*given)
    assert eg.get_rng_state().tolist() == after
    assert_alike(ours.state(), theirs.state(), tolerance=1e-5)


def test_no_memory_for_the_arena(monkeypatch: pytest.MonkeyPatch) -> None:
    state = State()
    step = eg.compile(write_then_call(state))
    before = state.now()

    def none(shape: Any, dtype: Any) -> Any:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(arena_module, "_reserved", lambda: None)
        patch.setattr(program_module.pool, "empty", none)
        with pytest.raises(MemoryError, match="fix: a smaller batch"):
            step(eg.tensor(GOOD))
    assert _same(state.now(), before)
    step(eg.tensor(GOOD))
    assert float(state.count) == 1.0


def test_a_result_is_what_a_tensor_held_before_it_was_written() -> None:
    weight, sums = eg.zeros(4), eg.zeros(4)

    def step(x: Any) -> Any:
        old = weight.clone(), sums.clone()
        weight.add_(x)
        sums.copy_(eg.cumsum(sums + x, 0))
        return old

    compiled = eg.compile(step)
    for round in range(3):
        expected = arrays([weight, sums])
        assert_alike(compiled(eg.ones(4)), expected, tolerance=0.0)
        assert weight.tolist() == [round + 1.0] * 4


# -- numbers that are not finite ----------------------------------------------------------------


class Logistic:
    """A step whose logarithm may meet zero."""

    def __init__(self) -> None:
        eg.manual_seed(0)
        self.weight = eg.ones(3, requires_grad=True)
        self.optimizer = eg.optim.SGD([self.weight], lr=0.1, momentum=0.9)

    def step(self, x: Any) -> Any:
        self.optimizer.zero_grad()
        noisy = x * eg.rand(3)
        loss = (self.weight * noisy).log().sum()
        loss.backward()
        self.optimizer.step()
        return loss

    def state(self) -> Any:
        moments = [dict(s) for s in self.optimizer.state.values()]
        return arrays([self.weight, self.weight.grad, moments]), eg.get_rng_state().tolist()


@pytest.mark.parametrize("threads", (1, 2))
def test_the_op_that_gave_an_infinity_is_named(threads: int) -> None:
    eg.set_num_threads(threads)
    model = Logistic()
    step = eg.compile(model.step, check_finite=True)
    for _ in range(2):
        step(eg.ones(3))
    before = model.state()
    with pytest.raises(NonFiniteError) as caught:
        step(eg.tensor([1.0, 0.0, 1.0]))
    assert f"first inf came from log: {__file__}:{Logistic.step.__code__.co_firstlineno + 3}" in (
        str(caught.value)
    )
    assert _same(model.state(), before)
    assert np.isfinite(step(eg.ones(3)).item())


def test_a_checked_step_computes_the_same() -> None:
    found = []
    for check in (False, True):
        model = Logistic()
        step = eg.compile(model.step, check_finite=check)
        found.append(([step(eg.ones(3)).item() for _ in range(3)], *model.state()))
    assert found[0][0] == found[1][0]
    assert found[0][2] == found[1][2]
    assert_alike(found[0][1], found[1][1], tolerance=0.0)


def test_infinities_that_come_to_nothing_are_none_of_its_business() -> None:
    def attend(scores: Any, mask: Any) -> Any:
        return scores.masked_fill(mask, float("-inf")).softmax(-1)

    compiled = eg.compile(attend, check_finite=True)
    scores = randn(2, 3)
    mask = eg.tensor([[True, False, False], [False, True, True]])
    assert_alike(compiled(scores, mask), attend(scores, mask), tolerance=1e-15)
    with pytest.raises(NonFiniteError, match=r"first inf .*(where|masked|full)(.|\n)*first nan "):
        compiled(scores, eg.ones(2, 3, dtype=eg.bool))


def test_what_was_not_finite_before_is_named() -> None:
    weight = eg.tensor([1.0, float("inf")])
    compiled = eg.compile(lambda x, scale: x * weight * scale, check_finite=True)
    with pytest.raises(NonFiniteError, match=r"nan was in an input: argument 0 "):
        compiled(eg.tensor([float("nan"), 1.0]), 1.0)
    with pytest.raises(NonFiniteError, match=r"inf was in an input: a captured tensor"):
        compiled(eg.ones(2), 1.0)
    weight.fill_(1.0)
    with pytest.raises(NonFiniteError, match=r"inf was in an input: a number"):
        compiled(eg.ones(2), float("inf"))


def test_a_checked_module() -> None:
    model = eg.compile(nn.Sequential(nn.Linear(2, 2), nn.Softplus()), check_finite=True)
    model(eg.ones(1, 2)).sum().backward()
    with pytest.raises(NonFiniteError):
        model(eg.full((1, 2), float("nan")))
    assert issubclass(NonFiniteError, FloatingPointError) and issubclass(
        NonFiniteError, RuntimeError
    )


# -- what cannot be traced ----------------------------------------------------------------------

OUTSIDE = eg.ones(3)


def branch(x: Any) -> Any:
    return x if x.sum() > 0 else -x


def take_item(x: Any) -> Any:
    return x * x.sum().item() ** 2


def to_numpy(x: Any) -> Any:
    return x * float(x.numpy()[0])


def count_by_data(x: Any) -> Any:
    return [x] * int(x[0])


def select_by_data(x: Any) -> Any:
    return x[x > 0]


def read_outside(x: Any) -> Any:
    return x * OUTSIDE * float(OUTSIDE.sum())


def format_outside(x: Any) -> Any:
    return x * float(f"{float(OUTSIDE.sum()):.3f}")


def branch_on_number(x: Any, scale: float) -> Any:
    return x if scale > 0.5 else x * scale


@pytest.mark.parametrize(
    "function",
    [branch, take_item, count_by_data, select_by_data],
    ids=lambda function: function.__name__,
)
def test_paths_that_values_decide_are_right_and_say_where(function: Any) -> None:
    line = f"{__file__}:{function.__code__.co_firstlineno + 1}"
    with pytest.raises(TraceError) as caught:
        eg.compile(function, fullgraph=True)(eg.ones(3))
    assert line in str(caught.value)
    compiled = eg.compile(function)
    for factor in (1.0, 2.0, -2.0, 1.0):
        x = eg.ones(3) * factor
        assert_alike(compiled(x), function(x))
        assert compiled.last_call.kind == "whole"
        assert all(line in read for read in compiled.last_call.breaks)
    assert compiled.last_call.breaks


@pytest.mark.parametrize(
    "function",
    [to_numpy, format_outside],
    ids=lambda function: function.__name__,
)
def test_python_that_reads_values_is_right_and_says_where(function: Any) -> None:
    line = f"{__file__}:{function.__code__.co_firstlineno + 1}"
    with pytest.raises(TraceError) as caught:
        eg.compile(function, fullgraph=True)(eg.ones(3))
    assert line in str(caught.value)
    compiled = eg.compile(function)
    with pytest.warns(RuntimeWarning, match="not one compiled program") as warned:
        compiled(eg.ones(3))
    assert len(warned) == 1 and line in str(warned[0].message)
    for factor in (1.0, 2.0, -2.0, 1.0):
        x = eg.ones(3) * factor
        assert_alike(compiled(x), function(x))
        assert line in compiled.last_call.reason


def test_a_float_of_an_outside_tensor_is_a_number_of_the_program() -> None:
    compiled = eg.compile(read_outside, fullgraph=True)
    for factor in (1.0, 2.0, -2.0, 0.5):
        x = eg.ones(3) * factor
        assert_alike(compiled(x), read_outside(x))
        assert compiled.last_call.kind == "whole"
        OUTSIDE.mul_(factor)
    assert len(programs_of(compiled)) == 1
    OUTSIDE.fill_(1.0)


def test_a_test_of_a_number_is_guarded_on() -> None:
    compiled = eg.compile(branch_on_number, fullgraph=True)
    for scale in (0.25, 0.75, 0.3, 0.9, 0.25):
        assert_alike(compiled(eg.ones(3), scale), branch_on_number(eg.ones(3), scale))
        assert compiled.last_call.kind == "whole"
    assert len(programs_of(compiled)) == 2
