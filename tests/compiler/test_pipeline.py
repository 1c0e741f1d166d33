"""One ordered list of passes, for every program; what it shows of itself."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.compiler.passes import pipeline
from evergrad.compiler.passes.pipeline import PASSES, Pass, Target
from evergrad.compiler.passes.rewriter import rewrite
from evergrad.core.trace import Graph
from evergrad.nn import functional as F

from .test_memory_plan import make_step

SOURCES = Path(eg.__file__).parent


def step(x: Any, w: Any) -> Any:
    return F.dropout(F.softmax(x @ w, -1), 0.5).mean()


def given() -> tuple[Any, Any]:
    return eg.ones(4, 3), eg.ones(3, 2)


def test_names_are_unique_and_every_pass_has_a_target() -> None:
    names = [made.name for made in PASSES]
    assert len(set(names)) == len(names)
    assert all(made.targets for made in PASSES)
    assert {target for target in Target if any(p.targets & target for p in PASSES)} == set(Target)


def test_nobody_runs_a_pass_but_the_pipeline() -> None:
    """Other modules import the pipeline, not the passes in its list."""
    passes = {made.run.__name__ for made in PASSES}
    for path in SOURCES.rglob("*.py"):
        if path.name in ("pipeline.py", "rewriter.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and "compiler.passes" in (node.module or ""):
                assert not passes & {alias.name for alias in node.names}, path


def test_a_pass_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs for compiled steps and programs of eager mode."""
    seen: list[int] = []

    def count(graph: Graph) -> Graph:
        seen.append(len(graph.equations))
        return rewrite(graph, lambda *given: None)

    monkeypatch.setattr(pipeline, "PASSES", (*PASSES, Pass("count", count)))
    variant, _ = eg.compile(lambda x: x * 5.25 + 1).compiled_for((eg.ones(3),), {})
    assert seen == [2]
    assert variant.program.executable.target is Target.STEP


def test_a_pass_that_finds_nothing_returns_its_graph() -> None:
    """All but the sweep that simplifies, which eliminates common subexpressions."""
    graphs = []
    variant, _ = eg.compile(lambda x: x.sin()).compiled_for((eg.ones(3),), {})
    pipeline.optimize(
        variant.captured.graph, Target.STEP, lambda name, graph: graphs.append((name, graph))
    )
    changed = [name for (_, a), (name, b) in pairwise(graphs) if a is not b]
    assert changed == ["simplify"]


def test_limits_take_other_passes() -> None:
    free, x, y = make_step(depth=10)
    peak = free.plan(x, y).peak
    limited, x, y = make_step(depth=10, memory_limit=peak * 3 // 4)
    names = [found["name"] for found in limited.explain(x, y, passes=True).data["passes"]]
    assert "hoist_activation_grads" not in names
    assert names[-4:] == ["recompute_cheap", "widen_weights", "inline_updates", "rematerialize"]
    fitting, x, y = make_step(depth=10, memory_limit=peak)
    names = [found["name"] for found in fitting.explain(x, y, passes=True).data["passes"]]
    assert "hoist_activation_grads" in names and names[-2:] == ["widen_weights", "inline_updates"]


def test_constants_are_lifted_to_inputs() -> None:
    variant, _ = eg.compile(lambda x: x * eg.arange(3.0)).compiled_for((eg.ones(3),), {})
    graph = pipeline.optimize(variant.captured.graph, Target.STEP)
    ((var, tensor),) = graph.captures
    np.testing.assert_array_equal(tensor.numpy(), [0, 1, 2])
    lifted, constants = pipeline.lift_captures(graph)
    assert not lifted.captures and lifted.inputs[-1] is var
    assert len(constants) == 1 and constants[0] is tensor


# -- what is shown ------------------------------------------------------------------------------


def test_explain_shows_every_pass() -> None:
    compiled = eg.compile(step)
    explanation = compiled.explain(*given(), passes=True)
    found = explanation.data["passes"]
    names = [p.name for p in PASSES if p.targets & Target.STEP]
    assert [entry["name"] for entry in found] == ["traced", *names]
    simplified = found[names.index("simplify") + 1]
    lines = [line.split("  # ")[0] for line in simplified["text"].splitlines()]
    assert simplified["equations"] == len([line for line in lines if " = " in line])
    assert any("amax(" in line for line in lines)
    assert not any("softmax(" in line for line in lines)
    assert " = softmax(" in found[0]["text"]
    assert any(entry["text"] is None for entry in found)
    text, page = explanation.text(), explanation.html()
    for name in names:
        assert f"after {name}: " in text and f"After {name}: " in page
    assert "after recognise_attention: " in text and ", unchanged" in text
    assert explanation.json()["passes"] == found


def test_explain_shows_no_pass_unless_told_to() -> None:
    explanation = eg.compile(step).explain(*given())
    assert explanation.data["passes"] == []
    assert "after simplify" not in explanation.text()


def test_a_module_explains_its_passes() -> None:
    layer = eg.compile(eg.nn.Linear(3, 2))
    data = layer.explain(eg.ones(1, 3), passes=True).data
    assert data["passes"][0]["name"] == "traced"


def test_a_program_from_the_disk_explains_its_passes() -> None:
    for _ in range(2):
        compiled = eg.compile(step)
        compiled(*given())
    assert compiled.explain(*given(), passes=True).data["passes"]


SHOW = """
import evergrad as eg
step = eg.compile(lambda x: x.sin() * 1)
print(step(eg.zeros(2)).tolist())
"""


def show(folder: Path, **settings: str) -> Any:
    environment = {**os.environ, "EVERGRAD_KERNEL_CACHE": str(folder), **settings}
    return subprocess.run(
        [sys.executable, "-c", SHOW], capture_output=True, text=True, check=True, timeout=120,
        env=environment,
    )  # fmt: skip


def test_a_setting_prints_graphs_while_compiling(tmp_path: Path) -> None:
    """Also if the program is on the disk."""
    assert show(tmp_path).stderr == ""
    assert show(tmp_path).stderr == ""
    shown = show(tmp_path, EVERGRAD_SHOW_PASSES="1")
    assert shown.stdout == "[0.0, 0.0]\n"
    assert "== after traced: 2 equations\n%input.0: float32[2]\n%sin.0: float32[2] = sin(" in (
        shown.stderr
    )
    assert "== after simplify: 1 equations" in shown.stderr
    assert "<string>:3" in shown.stderr  # the line of the source
    assert show(tmp_path, EVERGRAD_SHOW_PASSES="0").stderr == ""


def test_a_setting_that_is_no_count_is_refused(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        show(tmp_path, EVERGRAD_VERIFY_EQUATIONS="many")
    assert "EVERGRAD_VERIFY_EQUATIONS='many' is not a count" in caught.value.stderr
    assert show(tmp_path, EVERGRAD_VERIFY_EQUATIONS="0").stdout == "[0.0, 0.0]\n"
