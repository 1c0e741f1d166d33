"""The profiler: what it sees, when, and what it writes."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import evergrad
from evergrad.profiler import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    record_function,
    schedule,
    tensorboard_trace_handler,
)
from twins import refuse


def work() -> None:
    x = evergrad.ones(4, 4, requires_grad=True)
    (x @ x).exp().sum().backward()


def test_it_counts_ops_backward_and_named_ranges() -> None:
    work()  # derivative formulas are worked out the first time
    with profile(activities=[ProfilerActivity.CPU]) as seen, record_function("twice"):
        work()
        work()
    counts = {row.key: row.count for row in seen.key_averages()}
    assert counts["twice"] == 1
    assert counts["matmul"] == counts["exp"] == counts["backward"] == 2
    whole = next(row for row in seen.key_averages() if row.key == "twice")
    inner = sum(row.self_cpu_time_total for row in seen.key_averages() if row.key != "twice")
    assert whole.cpu_time_total >= inner > 0
    total = seen.key_averages().total_average()
    assert total.self_cpu_time_total == pytest.approx(whole.cpu_time_total)


def test_it_stops_and_gives_back_the_hook() -> None:
    former = sys.getprofile()
    with profile() as seen:
        evergrad.ones(1).exp()
    count = len(seen.events())
    evergrad.ones(1).exp()
    assert len(seen.events()) == count and sys.getprofile() is former
    with pytest.raises(ZeroDivisionError), profile():
        _ = 1 / 0
    assert sys.getprofile() is former


def test_the_table_is_sorted_and_limited() -> None:
    with profile(record_shapes=True) as seen:
        work()
        evergrad.ones(2, 2).exp()
    table = seen.key_averages().table(sort_by="self_cpu_time_total", row_limit=3)
    assert "Self CPU time total" in table and len(table.splitlines()) == 8
    with pytest.raises(ValueError, match="sort_by"):
        seen.key_averages().table(sort_by="colour")
    shapes = {
        r.input_shapes for r in seen.key_averages(group_by_input_shape=True) if r.key == "exp"
    }
    assert shapes == {((4, 4),), ((2, 2),)}


def test_a_schedule_says_which_steps_count(torch: ModuleType) -> None:
    for settings in (
        {"wait": 1, "warmup": 1, "active": 2},
        {"wait": 0, "warmup": 1, "active": 1, "repeat": 2},
        {"wait": 2, "warmup": 1, "active": 3, "repeat": 2, "skip_first": 3},
        {"wait": 2, "warmup": 1, "active": 1, "skip_first": 1, "skip_first_wait": 1},
    ):
        ours, theirs = schedule(**settings), torch.profiler.schedule(**settings)
        assert [ours(i).name for i in range(20)] == [theirs(i).name for i in range(20)]
    refuse(lambda ns: ns.profiler.schedule(wait=0, warmup=0, active=0), torch)
    for ns in (evergrad, torch):
        with pytest.warns(UserWarning, match="warmup"):
            ns.profiler.schedule(wait=0, warmup=0, active=1)


def test_traces_are_handed_over_cycle_by_cycle() -> None:
    ready: list[tuple[int, int]] = []

    def note(seen: Any) -> None:
        ready.append((seen.step_num, sum(e.key == "exp" for e in seen.events())))

    with profile(schedule=schedule(wait=1, warmup=1, active=2, repeat=2), on_trace_ready=note) as p:
        for _ in range(10):
            evergrad.ones(1).exp()
            p.step()
    assert ready == [(4, 2), (8, 2)]
    assert p.schedule(9) is ProfilerAction.NONE


@pytest.mark.parametrize("compressed", [False, True])
def test_traces_can_be_written(tmp_path: Path, compressed: bool) -> None:
    handler = tensorboard_trace_handler(str(tmp_path / "log"), "me", use_gzip=compressed)
    with profile(on_trace_ready=handler):
        work()
    (path,) = (tmp_path / "log").iterdir()
    opener: Any = gzip.open if compressed else open
    with opener(path, "rt") as file:
        events = json.load(file)["traceEvents"]
    assert {"matmul", "backward"} <= {event["name"] for event in events}
    assert all(event["dur"] >= 0 and event["ph"] == "X" for event in events)


def test_named_ranges_cost_nothing_outside() -> None:
    @record_function("alone")
    def function() -> int:
        return 3

    with record_function("alone"):
        assert function() == 3
