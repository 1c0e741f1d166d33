"""What type checkers see of the package: the generated stubs, and a user's program."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import evergrad
from evergrad.core.tensor import Tensor

HERE = Path(__file__).parent
SOURCE = Path(evergrad.__file__).parents[1]
WRONG = [HERE / "typing" / "wrong.py", HERE / "typing" / "wrong_names.py"]
RIGHT = [HERE / "typing" / "right.py", HERE / "typing" / "modern_programs.py"]
PROGRAMS = [HERE / "typing" / "tensor_programs.py", HERE / "typing" / "model_programs.py"]


def marked_lines() -> list[tuple[str, int]]:
    """The lines with a mistake, as pairs of a file and a number."""
    return [
        (path.name, number)
        for path in WRONG
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if line.endswith("# mistake")
    ]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    path = HERE.parent / "tools" / "generate_stubs.py"
    spec = importlib.util.spec_from_file_location("generate_stubs", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_stubs_are_what_the_generator_writes(generator: ModuleType) -> None:
    for name, text in generator.stubs().items():
        written = (SOURCE / "evergrad" / name).read_text()
        assert written == text, f"{name} is out of date: run `make stubs`"


def test_stubs_declare_every_public_name(generator: ModuleType) -> None:
    top = compile_names((SOURCE / "evergrad/__init__.pyi").read_text())
    assert set(evergrad.__all__) <= top
    methods = (SOURCE / "evergrad/core/tensor_methods.pyi").read_text()
    in_class = (SOURCE / "evergrad/core/tensor.py").read_text()
    for name in vars(Tensor):
        if not name.startswith("_"):
            declared = f"def {name}(" in methods or f"def {name}(" in in_class
            assert declared or f"    {name} = " in in_class, name


def compile_names(source: str) -> set[str]:
    import ast

    found = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname for alias in node.names if alias.asname}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_programs_that_are_checked_run(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_finds_the_mistakes_and_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    for path in (*WRONG, *RIGHT, *PROGRAMS):
        shutil.copy(path, tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-error-summary",
         "--hide-error-context", "--cache-dir", str(tmp_path / "cache"), "--config-file=",
         *(path.name for path in (*WRONG, *RIGHT, *PROGRAMS))],
        cwd=tmp_path, capture_output=True, text=True, timeout=600,
        env={"MYPYPATH": str(SOURCE), "PATH": ""},
    )  # fmt: skip
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    places = {(line.split(":")[0], int(line.split(":")[1])) for line in errors}
    assert sorted(places) == marked_lines(), done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("pyright") is None, reason="pyright is not installed")
def test_pyright_finds_the_mistakes_and_nothing_else(tmp_path: Path) -> None:
    for path in (*WRONG, *RIGHT, *PROGRAMS):
        shutil.copy(path, tmp_path)
    settings = {"extraPaths": [str(SOURCE)], "typeCheckingMode": "standard"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        ["pyright", "--outputjson", "--pythonpath", sys.executable, "."],
        cwd=tmp_path, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    found = json.loads(done.stdout)["generalDiagnostics"]
    places = {
        (Path(d["file"]).name, d["range"]["start"]["line"] + 1)
        for d in found
        if d["severity"] == "error"
    }
    assert sorted(places) == marked_lines(), done.stdout


@pytest.mark.skipif(shutil.which("pyright") is None, reason="pyright is not installed")
def test_pyright_knows_the_types_of_nearly_all_exported_symbols() -> None:
    tool = HERE.parent / "tools" / "verify_types.py"
    done = subprocess.run(
        [sys.executable, str(tool), "--least", "0.95", "evergrad"],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_any_stands_where_nothing_better_is_known() -> None:
    """A ratchet: lower it when types were added."""
    tool = HERE.parent / "tools" / "count_any.py"
    done = subprocess.run(
        [sys.executable, str(tool), "--most", "15"],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
