"""What ``explain`` reports of a program is true of it, and has no side effects."""

from __future__ import annotations

import json
import re
import resource
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import evergrad as eg
from evergrad import nn
from evergrad.compiler.explain import timing
from evergrad.compiler.explain.report import Explanation

from .steps import arrays, programs_of, randn


class Model:
    """A step with products, loops, folds, a lookup, random numbers and an op without a kernel."""

    def __init__(self) -> None:
        eg.manual_seed(0)
        self.table, self.layer, self.out = nn.Embedding(9, 16), nn.Linear(16, 32), nn.Linear(32, 5)
        parameters = [
            *self.table.parameters(), *self.layer.parameters(), *self.out.parameters(),
        ]  # fmt: skip
        self.optimizer = eg.optim.AdamW(parameters, lr=0.01)

    def step(self, places: Any, labels: Any, scale: float) -> Any:
        self.optimizer.zero_grad()
        hidden = nn.functional.dropout(self.table(places), 0.1)
        hidden = nn.functional.gelu(self.layer(hidden)) * scale
        penalty = eg.lgamma(hidden.mean(0).double()).sum().float()
        loss = nn.functional.cross_entropy(self.out(hidden), labels) + penalty
        loss.backward()
        self.optimizer.step()
        return loss

    def state(self) -> list[Any]:
        parameters = self.optimizer.param_groups[0]["params"]
        states = [dict(s) for s in self.optimizer.state.values()]
        return arrays([parameters, [p.grad for p in parameters], states])


PLACES = eg.arange(8)
LABELS = eg.tensor([0, 1, 2, 3, 4, 0, 1, 2])


@pytest.fixture(scope="module")
def trained() -> tuple[Model, Any]:
    model = Model()
    step = eg.compile(model.step)
    for _ in range(2):
        step(PLACES, LABELS, 0.5)
    return model, step


@pytest.fixture(scope="module")
def explanation(trained: tuple[Model, Any]) -> Explanation:
    return trained[1].explain(PLACES, LABELS, 0.5)  # type: ignore[no-any-return]


def test_asking_changes_nothing(trained: tuple[Model, Any]) -> None:
    model, step = trained
    before, stream = model.state(), eg.get_rng_state().tolist()
    programs = programs_of(step)
    step.explain(PLACES, LABELS, 0.5)
    assert eg.get_rng_state().tolist() == stream
    assert programs_of(step) == programs
    for a, b in zip(model.state(), before, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_program_runs_the_same_after_it_was_explained() -> None:
    found = []
    for explain in (False, True):
        model = Model()
        step = eg.compile(model.step)
        losses = []
        for _ in range(3):
            if explain:
                step.explain(PLACES, LABELS, 0.5)
            losses.append(step(PLACES, LABELS, 0.5).item())
        found.append(losses)
    assert found[0] == found[1]


def test_explaining_a_step_that_has_not_run_yet() -> None:
    model = Model()
    before = arrays(model.optimizer.param_groups[0]["params"])
    explanation = eg.compile(model.step).explain(PLACES, LABELS, 0.5)
    assert explanation.data["nodes"]
    for a, b in zip(arrays(model.optimizer.param_groups[0]["params"]), before, strict=True):
        np.testing.assert_array_equal(a, b)
    assert all(p.grad is None for p in model.optimizer.param_groups[0]["params"])


@pytest.mark.skipif(sys.platform != "linux", reason="needs the faults of one thread")
def test_times_are_not_those_of_fresh_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes only where the system brings memory, and then far enough for an instruction
    not to be measured again."""

    def faults() -> int:
        return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt * 10**9  # type: ignore[attr-defined]

    x = randn(600, 700)
    step = eg.compile(lambda x: (x.exp() @ x.sin().t()).tanh().sum(0) + 1)
    monkeypatch.setattr(timing, "thread_time_ns", faults)
    nodes = step.explain(x).data["nodes"]
    assert len(nodes) > 1
    assert sum(node["seconds"] for node in nodes) < len(nodes)


def test_every_equation_is_in_a_unit(explanation: Explanation) -> None:
    data = explanation.data
    shown = {e["op"] for node in data["nodes"] for e in node["equations"]}
    views = {"reshape", "permute", "expand", "as_strided", "full", "slice"}
    assert set(data["simplified"]["by_op"]) - views <= shown
    assert sum(data["captured"]["by_op"].values()) == data["captured"]["equations"]
    assert data["captured"]["text"].count("= linear(") == data["captured"]["by_op"]["linear"] == 2


def test_units_tell_their_kernels(explanation: Explanation) -> None:
    nodes = explanation.data["nodes"]
    loops = [u for u in nodes if u["kind"] == "loop" and len(u["equations"]) > 1]
    loop = next(u for u in loops if u["space"])  # numbers, such as those of a schedule, have none
    assert all(n > 0 for n in loop["space"])
    for node in nodes:
        for part in node["instructions"]:
            if part["kernel"] is not None:
                assert part["chunks"] >= 1 and part["passes"] >= 1 and part["scratch"] >= 0
                assert part["kernel"] in explanation.code
        assert node["seconds"] >= 0.0
    assert explanation.data["seconds"] == pytest.approx(sum(u["seconds"] for u in nodes))


def test_calls_are_named_with_their_line(explanation: Explanation) -> None:
    first = Model.step.__code__.co_firstlineno
    calls = {call["op"]: call["location"] for call in explanation.data["calls"]}
    assert f"{__file__}:{first + 4}" in calls["lgamma"]
    assert all(call["seconds"] > 0.0 for call in explanation.data["calls"])
    names = {u["equations"][0]["op"] for u in explanation.data["nodes"] if u["kind"] == "call"}
    assert names == set(calls)


def test_products_and_loops_have_rates() -> None:
    a, b = randn(96, 64), randn(64, 80)
    step = eg.compile(lambda x: (x @ b).T * 2.0 + 1.0)
    product, loop = step.explain(a).data["nodes"]
    assert product["flops"] == 2 * 96 * 64 * 80
    rate = product["gflops_per_second"]
    assert rate == pytest.approx(product["flops"] / product["seconds"] / 1e9)
    assert loop["flops"] == 0 and loop["gflops_per_second"] is None
    assert loop["bytes"] == 2 * 8 * 96 * 80
    assert loop["gigabytes_per_second"] > 0.0


def test_of_a_table_only_the_rows_taken_count() -> None:
    table = randn(10_000, 16)
    step = eg.compile(lambda places: nn.functional.embedding(places, table))
    (node,) = step.explain(eg.arange(4)).data["nodes"]
    assert node["bytes"] == 4 * 8 + 2 * 4 * 16 * 8


def test_the_memory_is_the_plan(trained: tuple[Model, Any], explanation: Explanation) -> None:
    plan = trained[1].plan(PLACES, LABELS, 0.5)
    memory = explanation.data["memory"]
    assert (memory["peak"], memory["lower_bound"]) == (plan.peak, plan.lower_bound)
    assert memory["timeline"] == plan.timeline()
    assert len(memory["timeline"]) == memory["waves"]
    live = [memory["buffers"][n] for n in memory["at_peak"]]
    assert [b["bytes"] for b in live] == [b.nbytes for b in plan.at_peak()]
    assert any("test_explain.py" in b["location"] for b in live)
    for buffer in memory["buffers"]:
        assert 0 <= buffer["offset"] <= memory["peak"] - buffer["bytes"]


def test_the_text_begins_with_what_matters(explanation: Explanation) -> None:
    text = str(explanation)
    heads = [
        "Model.step: ",
        "\ntime\n",
        "\nmemory\n",
        "\nNumPy calls\n",
        "\nguards\n",
        "\nnodes",
        "\ncaptured",
    ]
    places = [text.index(head) for head in heads]
    assert places == sorted(places) and places[0] == 0
    times = [float(u["seconds"]) for u in explanation.data["nodes"]]
    table = text[places[1] : places[2]].splitlines()
    slowest = max(explanation.data["nodes"], key=lambda node: node["seconds"])
    assert slowest["label"] in table[3]
    assert max(times) == slowest["seconds"]
    assert "define void @" not in text
    assert "define void @" in explanation.text(code=True)


def test_the_code_of_each_kernel(explanation: Explanation) -> None:
    for name, code in explanation.code.items():
        assert f"define void @{name}(" in code["ir"]
        assert f"{name}:" in code["assembly"]


def test_json_is_plain_data(explanation: Explanation) -> None:
    assert json.loads(json.dumps(explanation.json())) == explanation.json()


def test_the_page_stands_alone(explanation: Explanation) -> None:
    page = explanation.html()
    fetched = page.replace("http://www.w3.org/2000/svg", "")  # a name, which nothing loads
    assert not re.search(r"<(script[^>]* src|link|img|iframe)|https?://|@import|url\(", fetched)
    (drawing,) = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    root = ElementTree.fromstring(drawing)
    memory = explanation.data["memory"]
    rectangles = root.findall("rect")
    assert len(rectangles) == len(memory["buffers"])
    for rectangle, buffer in zip(rectangles, memory["buffers"], strict=True):
        title = rectangle.find("title")
        assert title is not None and title.text is not None
        assert title.text.startswith(buffer["label"])
        assert float(rectangle.get("y", "-1")) >= -0.1
    for tag in ("table", "details", "pre", "svg"):
        assert page.count(f"<{tag}") == page.count(f"</{tag}>")


def test_saving(explanation: Explanation, tmp_path: Path) -> None:
    for name, start in (("a.html", "<!doctype html>"), ("a.json", "{"), ("a.txt", "Model.step")):
        explanation.save(tmp_path / name)
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)
    with pytest.raises(ValueError, match=r"fix: a name that ends in \.html"):
        explanation.save(tmp_path / "a.pdf")
    assert not (tmp_path / "a.pdf").exists()


def test_a_module_and_a_function_without_work() -> None:
    layer = eg.compile(nn.Linear(3, 2))
    assert "linear" in layer.explain(eg.ones(1, 3)).data["captured"]["by_op"]
    nothing = eg.compile(lambda x: x).explain(eg.ones(3))
    assert "nothing to do" in str(nothing)
    assert "The arena is empty" in nothing.html()


def test_an_index_out_of_range_while_explaining() -> None:
    table = randn(4, 3)
    step = eg.compile(lambda places: nn.functional.embedding(places, table))
    with pytest.raises(IndexError):
        step.explain(eg.tensor([7]))
    assert step(eg.tensor([1])).shape == (1, 3)
