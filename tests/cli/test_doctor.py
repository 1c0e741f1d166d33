"""``evergrad doctor``: what it tells, and that it notices what is broken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import evergrad
from evergrad import config
from evergrad.cli import diagnosis
from evergrad.compiler.native import jit

from .conftest import Run


def found(run: Run) -> tuple[int, dict[tuple[str, str], dict[str, Any]]]:
    """The exit code, and the findings by section and name."""
    result = run("doctor", "--json")
    data = json.loads(result.stdout)
    assert data["ok"] == (result.exit_code == 0)
    return result.exit_code, {(f["section"], f["name"]): f for f in data["findings"]}


def test_a_sound_machine_is_told_so(run: Run) -> None:
    result = run("doctor")
    assert result.exit_code == 0
    assert "Everything that is needed works." in result.stdout
    for word in (evergrad.__version__, "LLVM", "OpenBLAS", config.KERNEL_CACHE, "threads"):
        assert word in result.stdout


def test_versions_are_those_installed(run: Run) -> None:
    import llvmlite
    import numpy

    _, findings = found(run)
    assert findings["versions", "numpy"]["value"] == numpy.__version__
    assert findings["versions", "llvmlite"]["value"] == llvmlite.__version__


def test_the_cache_is_measured(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "KERNEL_CACHE", str(tmp_path))
    (tmp_path / "one.o").write_bytes(bytes(1000))
    (tmp_path / "two.o").write_bytes(bytes(500))
    (tmp_path / "not-an-object.txt").write_bytes(bytes(7))
    _, findings = found(run)
    assert findings["kernel cache", "kept"]["value"] == "2 files, 1.46 KiB"
    assert findings["kernel cache", "writable"]["value"] == "yes"


def test_a_cache_that_cannot_be_written_is_told_with_the_way_out(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(config, "KERNEL_CACHE", str(tmp_path / "file" / "kernels"))
    code, findings = found(run)
    assert code == 0  # slower, but right
    assert findings["kernel cache", "writable"]["state"] == "missing"
    assert "EVERGRAD_KERNEL_CACHE" in findings["kernel cache", "writable"]["fix"]


def test_where_llvm_works_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    if jit.uses_compile_pool():
        _, findings = found(run)
        assert findings["compiled program", "LLVM"]["value"] == "in processes of its own"
    monkeypatch.setattr(config, "COMPILE_IN_PROCESS", True)
    code, findings = found(run)
    assert code == 0
    assert "EVERGRAD_COMPILE_IN_PROCESS" in findings["compiled program", "LLVM"]["value"]


def test_missing_extras_are_no_fault(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = {"": ["numpy"], "app": ["click", "no-such-package"]}
    monkeypatch.setattr(diagnosis, "requirements", lambda: packages)
    code, findings = found(run)
    assert code == 0
    assert findings["extras", "app"]["state"] == "missing"
    assert "no-such-package (not installed)" in findings["extras", "app"]["value"]
    assert findings["extras", "app"]["fix"] == "pip install 'evergrad[app]'"


def test_a_needed_package_that_is_missing_is_a_fault(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "requirements", lambda: {"": ["numpy", "no-such-package"]})
    result = run("doctor")
    assert result.exit_code == 1
    assert "fix: pip install no-such-package" in result.stdout
    assert "Broken: versions: no-such-package" in result.stdout


def test_an_old_python_is_a_fault(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "OLDEST_PYTHON", (99, 0))
    code, findings = found(run)
    assert code == 1
    assert findings["versions", "Python"]["fix"] == "install Python 99.0 or newer"


def test_a_compiler_that_fails_is_a_fault(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def compile(function: Any) -> Any:
        raise OSError("no LLVM here")

    monkeypatch.setattr(evergrad, "compile", compile, raising=False)
    code, findings = found(run)
    assert code == 1
    assert findings["compiled program", "failed"]["value"] == "OSError: no LLVM here"
    assert findings["compiled program", "failed"]["fix"]


def test_a_compiler_that_computes_something_else_is_a_fault(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile(function: Any) -> Any:
        return lambda *args: 1.01 * function(*args)

    monkeypatch.setattr(evergrad, "compile", compile, raising=False)
    code, findings = found(run)
    assert code == 1
    assert findings["compiled program", "result"]["state"] == "broken"


def test_requirements_are_read_by_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["numpy>=2.1", "click>=8.1; extra == 'app'", 'mpi4py (>=4) ; extra == "mpi"']
    monkeypatch.setattr(diagnosis.metadata, "requires", lambda name: lines)
    assert diagnosis.requirements() == {"": ["numpy"], "app": ["click"], "mpi": ["mpi4py"]}
