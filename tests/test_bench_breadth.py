"""The benchmark of many kinds: what it holds, what it takes for equal, how it survives failures."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the benchmark is a package of the repository, not of the wheel

from bench.breadth import report, run  # noqa: E402
from bench.breadth.catalogue import FAMILIES, WORKLOADS  # noqa: E402
from bench.breadth.contenders import arrays_of, difference  # noqa: E402
from bench.breadth.registry import Work, Workload  # noqa: E402
from bench.breadth.worker import Settings, measure  # noqa: E402

import evergrad  # noqa: E402

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is the reference")
_SETTINGS = Settings(["torch", "evergrad", "evergrad compiled"], 1, 2, 1e-4, "cpu")


def test_sixty_workloads_of_all_families() -> None:
    assert len(WORKLOADS) >= 60
    found = {workload.family for workload in WORKLOADS.values()}
    assert found == {family.__name__.rpartition(".")[2] for family in FAMILIES}


@pytest.mark.parametrize("name", ["mlp_accumulated", "k_means"])
@needs_torch
def test_a_workload_is_measured_where_its_results_agree(name: str) -> None:
    entry = measure(WORKLOADS[name], _SETTINGS)
    assert {r["status"] for r in entry["results"].values()} == {"ok"}
    assert report.eager_ratio(entry) is not None
    assert name in report.table([entry], _SETTINGS.contenders)


@needs_torch
def test_another_result_takes_no_part() -> None:
    def build(torch: Any) -> Work:
        return Work(lambda: torch.ones(2) * (1.0 if torch is evergrad else 2.0))

    entry = measure(Workload("other", "made_up", build, 1e-3), _SETTINGS)
    assert entry["results"]["evergrad"]["status"] == "disagrees"
    assert "seconds" not in entry["results"]["evergrad"]
    assert "call 1" in report.summary([entry])


@pytest.mark.parametrize(
    ("found", "wanted", "words"),
    [
        ([1.0], [1.0], None),
        ([1.0005], [1.0], None),
        ([1.01], [1.0], "differs by"),
        ([float("nan")], [1.0], "differs by"),
        ([1, 2], [1, 3], "1 of 2 integers"),
        ([1.0, 2.0], [1.0], "shape"),
    ],
)
def test_difference(found: list[Any], wanted: list[Any], words: str | None) -> None:
    told = difference([np.array(found)], [np.array(wanted)], 1e-3)
    assert told == words if words is None else words in (told or "")


def test_results_of_any_form_are_flat_arrays() -> None:
    result = evergrad.ones(2), [1.5, evergrad.tensor([True])], evergrad.ones(1).bfloat16()
    assert [a.dtype.kind for a in arrays_of(result)] == ["f", "f", "b", "f"]


def test_a_worker_that_dies_costs_one_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []

    def one_process(names: list[str], request: Any, timeout: float) -> Any:
        calls.append(list(names))
        if len(calls) > 1:
            for name in names:
                yield {"workload": name, "family": "x", "results": {}}

    monkeypatch.setattr(run, "_one_process", one_process)
    entries = list(run.in_processes(["vae", "gan", "vit"], {"contenders": ["torch"]}, 1))
    assert [e["workload"] for e in entries] == ["vae", "gan", "vit"]
    assert entries[0]["results"]["torch"]["status"] == "died"
