"""The graphs of five models after every pass are those that are kept, on any machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import evergrad as eg
from evergrad.compiler.passes.dump import dump
from evergrad.compiler.passes.pipeline import PASSES, Target
from evergrad.core.trace import Graph

from .dump_passes import FOLDER, MODELS

ROOT = Path(__file__).parents[2]
# What differs from machine to machine is patched before anything reads it.
PRINT_ELSEWHERE = """
import runpy, sys
from evergrad.compiler.native import target
assert callable(target._cpu_info)
target._cpu_info = lambda: {told!r}
__import__("evergrad").set_num_threads(1)
sys.argv = ["dump_passes", "--print"]
runpy.run_module("tests.compiler.dump_passes", run_name="__main__")
"""


def kept(name: str) -> str:
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", MODELS)
def test_graphs_are_those_that_are_kept(name: str) -> None:
    """In a fresh process: a trace may reuse what earlier ones in the process have cached."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.compiler.dump_passes", "--print", name],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{kept(name)}\n", (
        f"the passes give {name} another graph.\n"
        "  fix: if that is intended, python -m tests.compiler.dump_passes, and look at the diff."
    )


@pytest.mark.parametrize(
    "told",
    [{"flags": ""}, {"flags": "fma avx2"}, {"flags": "fma avx2 avx512f"}, {"Features": "asimd"}],
    ids=["no vectors", "AVX2", "AVX-512", "ARM"],
)
def test_graphs_do_not_depend_on_the_machine(told: dict[str, str], tmp_path: Path) -> None:
    """Nor on the order of sets, the number of threads, or what is in the cache."""
    done = subprocess.run(
        [sys.executable, "-c", PRINT_ELSEWHERE.format(told=told)],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=240,
        env={
            **os.environ, "PYTHONHASHSEED": str(7 * len(str(told))),
            "EVERGRAD_KERNEL_CACHE": str(tmp_path), "EVERGRAD_VERIFY_EQUATIONS": "1000000",
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(f"{kept(name)}\n" for name in MODELS)


@pytest.mark.parametrize("name", MODELS)
def test_kept_graphs_hold_no_address_and_no_path(name: str) -> None:
    """A repr of an object that has none of its own would differ from run to run, those of enums and
    classes from one version of Python to the next."""
    found = re.findall(r"0x[0-9a-f]+|/\w+|\w+\.py\b|<[^>]*>|\bobject at\b", kept(name))
    assert not found


def test_every_pass_is_in_every_dump_and_most_change_one() -> None:
    changed = set()
    for name in MODELS:
        titles = re.findall(r"^== (\w+): \d+ equations(, unchanged)?$", kept(name), re.M)
        steps = [step.name for step in PASSES if step.targets & Target.STEP]
        steps = ["outline_updates", *steps, "inline_updates"]
        assert [title for title, _ in titles] == ["traced", *steps]
        changed |= {title for title, unchanged in titles if not unchanged}
    assert len(changed) >= 9, changed


def test_lines_end_with_their_source_on_request() -> None:
    captured = traced_sum()
    (line,) = [
        line for line in dump(captured, locations=True).splitlines() if line.startswith("%sum")
    ]
    assert line.startswith("%sum.0: float32[] = sum(%input.0, dims=(0, 1), keepdim=False)  # ")
    assert "test_dump_passes.py" in line and "x.sum()" in line
    assert "#" not in dump(captured)


def traced_sum() -> Graph:
    variant, _ = eg.compile(lambda x: x.sum()).compiled_for((eg.ones(2, 3),), {})
    return variant.captured.graph  # type: ignore[no-any-return]


def test_layouts_that_are_not_contiguous_are_shown() -> None:
    variant, _ = eg.compile(lambda x: x.t() + 1).compiled_for((eg.ones(2, 3),), {})
    text = dump(variant.captured.graph)
    assert "%permute.0: float32[3,2]{1,3} = permute(%input.0, order=(1, 0))" in text
    assert "%add.0: float32[3,2] = add(%permute.0, 1)" in text
    assert text.splitlines()[-1] == "return %add.0"
