"""Paths of functions that decide by the data: stages, their sharing, limits and reports."""

from __future__ import annotations

import gc
import random
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.compiler import kept_programs
from evergrad.compiler.frontend.paths import path_policy
from evergrad.errors import TraceError

Step = Callable[..., Any]


def training() -> tuple[Any, Any, Any]:
    eg.manual_seed(0)
    model = eg.nn.Sequential(eg.nn.Linear(3, 4), eg.nn.Linear(4, 1))
    return model, eg.optim.SGD(model.parameters(), lr=0.01), eg.randn(6, 3)


def trained_step(model: Any, optimizer: Any, limit: float) -> Step:
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        if loss.item() > limit:
            return None
        optimizer.step()
        return loss.detach()

    return step


def test_python_does_not_run_once_the_paths_are_known() -> None:
    model, optimizer, x = training()
    step = eg.compile(trained_step(model, optimizer, 1.0))
    for scale in (1.0, 30.0, 1.0, 30.0):
        step(x * scale)
    entered = []
    step.run_python = lambda *args: entered.append(args)
    for scale in (1.0, 30.0, 30.0, 1.0):
        assert (step(x * scale) is None) == (scale == 30.0)
        assert step.last_call.kind == "whole"
        assert "if loss.item() > limit" in step.last_call.breaks[0]
    assert not entered


def test_paths_share_their_first_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eg.config, "REVALIDATE", False)
    model, optimizer, x = training()
    step = eg.compile(trained_step(model, optimizer, 1.0))
    for scale in (1.0, 30.0, 1.0):  # the first call has no gradients yet
        step(x * scale)
    (known,) = step.variants.values()
    first, second = [variant.captured.path for variant in known[-2:]]
    assert first.stages[0] is second.stages[0]
    runs: list[int] = []
    original = first.stages[0].runner
    first.stages[0].runner = lambda *given: runs.append(1) or original(*given)
    step(x)
    step(x * 30)
    assert len(runs) == 2  # once per call, whichever path was tried first


def test_a_loop_is_a_path_for_each_count() -> None:
    def step(x: Any) -> Any:
        count = 0
        while x.abs().max() > 1:
            x, count = x / 2, count + 1
        return x, count

    compiled = eg.compile(step)
    for _ in range(2):
        for power in range(6):
            found, count = compiled(eg.full((2,), 0.75 * 2**power))
            assert count == power and found[0].item() == 0.75
    for power in range(6):
        compiled(eg.full((2,), 0.75 * 2**power))
        assert compiled.last_call.kind == "whole"
        assert len(compiled.last_call.breaks) == power + 1


def test_a_path_beyond_the_first_is_compiled_when_it_recurs() -> None:
    compiled = eg.compile(lambda x: x.expand(int(x.sum())).sum())
    kinds = []
    for value in (1, 2, 3, 4, 5, 5, 5):
        compiled(eg.full((1,), float(value)))
        kinds.append(compiled.last_call.kind)
    assert kinds == ["whole"] * 4 + ["segments", "whole", "whole"]


def test_the_paths_of_a_signature_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_policy, "MOST_PATHS", 3)
    monkeypatch.setattr(path_policy, "_MOST_COMPILED", 6)
    monkeypatch.setattr(kept_programs, "_SMALL_CALLS", 1000)
    compiled = eg.compile(lambda x: x.expand(int(x.sum())).sum())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for value in [n for n in range(12) for _ in range(2)]:
            found = compiled(eg.full((1,), float(value)))
            assert found.item() == value * value
    (known,) = compiled.variants.values()
    assert len(known) <= 3
    assert not compiled.path_policy.is_on
    compiled(eg.full((1,), 50.0))
    assert compiled.last_call.kind == "segments"


def test_a_branch_that_is_new_leaves_nothing_behind() -> None:
    model, optimizer, x = training()
    other, of_other, _ = training()
    limit = 1.0
    step = eg.compile(trained_step(model, optimizer, limit))
    plain = trained_step(other, of_other, limit)
    for scale in (1.0, 1.0, 30.0, 1.0):
        found, expected = step(x * scale), plain(x * scale)
        assert (found is None) == (expected is None)
        for p, q in zip(model.parameters(), other.parameters(), strict=True):
            assert eg.allclose(p, q, atol=1e-6) and eg.allclose(p.grad, q.grad, atol=1e-6)
            assert p._version == q._version


def test_random_streams() -> None:
    def step(x: Any) -> Any:
        x = x + eg.randn(3)
        if x.sum() > 0:
            return x + eg.rand(3)
        return eg.nn.functional.dropout(x, 0.5)

    streams = []
    for function in (step, eg.compile(step)):
        eg.manual_seed(3)
        found = [function(eg.full((3,), 0.1 * n)) for n in range(-8, 8)]
        streams.append((found, eg.rand(2)))
    (a, x), (b, y) = streams
    assert eg.equal(x, y)
    assert all(eg.allclose(p, q, atol=1e-6) for p, q in zip(a, b, strict=True))


def test_a_failed_lookup_leaves_the_generator() -> None:
    table = eg.randn(4, 2)

    def step(index: Any) -> Any:
        noise = eg.rand(2)
        if noise.sum() > -1:
            return table[index] + noise
        return noise

    compiled = eg.compile(step)
    for _ in range(3):
        compiled(eg.tensor([0, 1]))
    eg.manual_seed(5)
    with pytest.raises(IndexError):
        compiled(eg.tensor([0, 7]))
    after = eg.rand(1)
    eg.manual_seed(5)
    assert eg.equal(after, eg.rand(1))


def test_draws_of_python_come_after_the_decision() -> None:
    def step(x: Any) -> Any:
        return x * random.random() if x.sum() > 0 else x

    compiled = eg.compile(step)
    values = [1.0, -1.0, 1.0, -1.0, -1.0, 1.0]
    random.seed(1)
    expected = [step(eg.full((2,), v)).tolist() for v in values] + [random.random()]
    random.seed(1)
    found = [compiled(eg.full((2,), v)).tolist() for v in values] + [random.random()]
    assert found[-1] == expected[-1]
    assert np.allclose(found[:-1], expected[:-1])


def test_fullgraph_refuses_a_decision() -> None:
    compiled = eg.compile(lambda x: x * 2 if x.sum() > 0 else x, fullgraph=True)
    with pytest.raises(TraceError):
        compiled(eg.ones(2))


def test_check_finite_names_the_operation() -> None:
    compiled = eg.compile(lambda x: x.log() if x.sum() > -1e9 else x, check_finite=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled(eg.ones(2))


def test_explain_shows_the_segments() -> None:
    model, optimizer, x = training()
    step = eg.compile(trained_step(model, optimizer, 1.0))
    state = eg.get_rng_state()
    weight = model[0].weight.detach().clone()
    report = step.explain(x)
    assert eg.equal(state, eg.get_rng_state()) and eg.equal(weight, model[0].weight)
    assert len(report.data["segments"]) == 2
    assert "if loss.item() > limit" in report.data["segments"][0]["end"]
    assert "segments of the path" in report.text() and "Segments of the path" in report.html()
    step(x)
    assert step.last_call.kind == "whole"
    assert not eg.compile(lambda v: v * 2).explain(x).data["segments"]


def test_programs_are_freed_with_the_function() -> None:
    def made() -> tuple[Any, list[weakref.ref[Any]]]:
        compiled = eg.compile(lambda x: x * 2 if x.sum() > 0 else x - 1)
        for value in (1.0, -1.0, 1.0):
            compiled(eg.full((300,), value))
        paths = [v.captured.path for known in compiled.variants.values() for v in known]
        return compiled, [weakref.ref(stage.program) for path in paths for stage in path.stages]

    compiled, programs = made()
    assert all(program() is not None for program in programs)
    gc.collect()
    gc.disable()
    try:
        del compiled
        assert all(program() is None for program in programs)
    finally:
        gc.enable()


def test_trim_gives_all_back() -> None:
    compiled = eg.compile(lambda x: x * 2 if x.sum() > 0 else x - 1)
    compiled(eg.ones(3))
    eg.memory.trim()
    assert not compiled.variants
    assert compiled(-eg.ones(3)).tolist() == [-2.0] * 3


def test_large_values_between_segments_are_not_kept() -> None:
    w = eg.randn(300, 300, requires_grad=True)

    def step(x: Any) -> Any:
        h = (w @ x).tanh()
        loss = h.square().mean()
        if loss.item() > 10:
            return None
        loss.backward()
        return loss.detach()

    compiled = eg.compile(step)
    for _ in range(3):
        compiled(eg.randn(300, 300))
    paths = [v.captured.path for known in compiled.variants.values() for v in known]
    assert not any(path.last_values or path.values or path.memo.results for path in paths)


def test_threads() -> None:
    def step(x: Any) -> Any:
        x = x + eg.zeros(2)
        return x * 2 if x.sum() > 0 else x - 1

    compiled = eg.compile(step)
    wrong: list[Any] = []

    def work(sign: int) -> None:
        for n in range(1, 60):
            value = float(sign * n if n % 3 else -sign * n)
            found = compiled(eg.full((2,), value))
            expected = value * 2 if value > 0 else value - 1
            if found[0].item() != expected:
                wrong.append((value, found))

    threads = [threading.Thread(target=work, args=(sign,)) for sign in (1, -1, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_revalidation_finds_a_stale_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path is traced again as others are, and is not taken for stale where the data decides
    otherwise."""
    compiled = eg.compile(lambda x: x * 2 if x.sum() > 0 else x - 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(200):
            value = 1.0 if n % 5 else -1.0
            assert compiled(eg.full((2,), value))[0].item() == (2.0 if n % 5 else -2.0)
    assert compiled.stale_programs == 0


def test_an_interrupted_stage_commits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    state = eg.zeros(2)

    def step(x: Any) -> Any:
        state.add_(x)
        return state * 2 if state.sum() > 0 else state - 1

    compiled = eg.compile(step)
    for _ in range(3):
        compiled(eg.ones(2))
    (path,) = [v.captured.path for known in compiled.variants.values() for v in known]

    def interrupt(*given: Any) -> Any:
        raise KeyboardInterrupt

    original, path.stages[0].runner = path.stages[0].runner, interrupt
    with pytest.raises(KeyboardInterrupt):
        compiled(eg.ones(2))
    path.stages[0].runner = original
    assert state.tolist() == [3.0, 3.0]
    compiled(eg.ones(2))
    assert state.tolist() == [4.0, 4.0]
