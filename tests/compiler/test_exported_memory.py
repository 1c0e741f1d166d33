"""Tensors whose memory NumPy sees share memory with each other only where it really overlaps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.core import trace
from evergrad.errors import TraceError

SIZE = 1 << 16


def through_views(a: Any, b: Any, x: Any) -> None:
    a[: SIZE // 2].add_(x[: SIZE // 2])
    b.view(2, -1)[0].mul_(2)
    a[SIZE // 2 :].sub_(1)


# Writes to two exported tensors. Once the first is written, its value in the trace is symbolic.
WRITES: dict[str, Callable[[Any, Any, Any], object]] = {
    "both": lambda a, b, x: (a.add_(x), b.add_(x)),
    "both twice": lambda a, b, x: (a.add_(x), b.add_(x), a.mul_(2), b.mul_(2)),
    "the first again": lambda a, b, x: (a.copy_(x), b.copy_(x), a.sub_(b)),
    "each from the other": lambda a, b, x: (a.add_(b), b.add_(a), a.add_(b)),
    "views": through_views,
    "zero": lambda a, b, x: (a.zero_(), b.zero_(), a.add_(x)),
    "fill": lambda a, b, x: (b.fill_(1.5), a.fill_(2.5), b.mul_(x)),
    "items": lambda a, b, x: (a.__setitem__(0, x[0]), b.__setitem__(1, x[1]), a.neg_()),
    "masked": lambda a, b, x: (a.masked_fill_(x > 1, 3.0), b.copy_(a), a.sqrt_()),
    "data": lambda a, b, x: (a.data.mul_(x), b.data.mul_(x), a.data.add_(1)),
    "a loop": lambda a, b, x: [t.mul_(1.5) for _ in range(3) for t in (a, b)],
}  # fmt: skip


@pytest.mark.parametrize("name", WRITES)
def test_writes_to_exported_tensors_are_one_program(name: str) -> None:
    def run(wrap: Callable[..., Any]) -> Any:
        a, b = eg.ones(SIZE), eg.full((SIZE,), 2.0)
        arrays = a.numpy(), b.numpy()

        def step(x: Any) -> Any:
            WRITES[name](a, b, x)
            return a.sum() + b.sum()

        step = wrap(step)
        seen = [float(step(eg.full((SIZE,), float(n + 1)))) for n in range(3)]
        return step, seen, [array.copy() for array in arrays]

    _, expected, contents = run(lambda step: step)
    compiled, seen, found = run(eg.compile)
    assert compiled.last_call.kind == "whole"
    assert seen == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(found, contents, rtol=1e-6)
    assert compiled.plan(eg.ones(SIZE)).peak >= 0


@pytest.mark.parametrize("first", [0, 1, SIZE - 1])
def test_writes_to_overlapping_memory_are_those_of_python(first: int) -> None:
    def run(wrap: Callable[..., Any]) -> Any:
        memory = np.ones(2 * SIZE, np.float32)
        a, b = (eg.from_numpy(memory[n : n + SIZE]) for n in (0, first))

        def step(x: Any) -> Any:
            a.add_(x)
            b.mul_(2)
            a.sub_(1)
            return b.sum()

        step = wrap(step)
        return [float(step(eg.full((SIZE,), float(n)))) for n in range(3)], memory

    with pytest.warns(RuntimeWarning, match="memory that is shared with NumPy is written"):
        seen, memory = run(eg.compile)
    expected, contents = run(lambda step: step)
    assert seen == pytest.approx(expected, rel=1e-6)
    np.testing.assert_array_equal(memory, contents)


@pytest.mark.parametrize("as_arguments", [True, False])
def test_overlapping_memory_that_is_only_read_is_one_program(as_arguments: bool) -> None:
    memory = np.arange(SIZE, dtype=np.float32)
    a, b = (eg.from_numpy(memory[n : n + 8]) for n in (0, 3))
    x = eg.ones(8, requires_grad=True)

    def step(a: Any, b: Any) -> Any:
        return (a * x + b).sum()

    compiled = eg.compile(step if as_arguments else lambda: step(a, b))
    for n in range(5):
        memory += n
        found = compiled(*((a, b) if as_arguments else ()))
        assert float(found.detach()) == pytest.approx(float(step(a, b).detach()), rel=1e-6)
        assert compiled.last_call.kind == "whole"


def test_memory_that_begins_to_overlap_what_is_written() -> None:
    def run(wrap: Callable[..., Any]) -> Any:
        memory = np.ones(2 * SIZE, np.float32)
        total = eg.from_numpy(memory[:SIZE])

        def step(x: Any) -> Any:
            total.mul_(2)
            return x + total

        step = wrap(step)
        at = [SIZE, SIZE, SIZE // 2, 0, SIZE]
        seen = [float(step(eg.from_numpy(memory[n : n + SIZE])).sum()) for n in at]
        return seen, memory

    with pytest.warns(RuntimeWarning, match="memory that is shared with NumPy is written"):
        seen, memory = run(eg.compile)
    expected, contents = run(lambda step: step)
    assert seen == pytest.approx(expected, rel=1e-6)
    np.testing.assert_array_equal(memory, contents)


@pytest.mark.parametrize("kind", ["array", "sparse"])
def test_a_call_that_only_python_can_run_says_so(kind: str) -> None:
    memory = np.ones(4, np.float32)

    def arguments() -> tuple[Any, Any]:
        if kind == "sparse":
            return eg.eye(3).to_sparse(), eg.ones(3)
        return eg.from_numpy(memory[:3]), memory[1:]

    def step(a: Any, b: Any) -> Any:
        return (a * 2).sum() + b.sum()

    expected = step(*arguments()).item()
    step_of_python = eg.compile(step)
    with pytest.warns(RuntimeWarning, match="step runs eagerly: ") as warned:
        assert [step_of_python(*arguments()).item() for _ in range(3)] == [expected] * 3
    assert [warning.filename for warning in warned] == [__file__]
    assert step_of_python.last_call.kind == "eager"
    whole = eg.compile(step, fullgraph=True)
    with pytest.raises(TraceError, match="cannot be compiled whole: "):
        whole(*arguments())


def test_layouts_of_symbolic_values_share_memory_with_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Layouts of symbolic values all have one address, which may be anywhere: also within the
    memory of a parameter that NumPy sees."""
    parameters = [eg.ones(3, requires_grad=True), eg.ones(SIZE, requires_grad=True)]
    optimizer = eg.optim.AdamW(parameters, lr=0.1)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = ((parameters[1] * x).sum() + parameters[0].sum()).square()
        loss.backward()
        optimizer.step()
        return loss.detach()

    x = eg.full((SIZE,), 1e-3)
    step = eg.compile(step)
    step(x)
    arrays = [p.detach().numpy() for p in parameters]
    address = arrays[1].__array_interface__["data"][0]
    monkeypatch.setattr(trace, "_NOWHERE_DATA", (address, False))
    assert step.plan(x).peak >= 0
    for _ in range(3):
        step(x)
        assert step.last_call.kind == "whole"
