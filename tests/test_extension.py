"""How lower layers reach higher ones: extension points and the namespace of ops."""

from __future__ import annotations

import ast
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import evergrad
from evergrad import extension
from evergrad.core.namespace import Ops, late_bound, ops
from evergrad.extension import ExtensionPoint, provided_by, provides, resolved

ROOT = Path(evergrad.__file__).parent


def first_arguments(*functions: str) -> set[str]:
    """The texts with which functions of these names are called anywhere in the package."""
    found = set()
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Name(id=name), args=[ast.Constant(value=text)]):
                    found |= {text} if name in functions else set()
    return found


def test_every_extension_point_has_a_provider_and_the_other_way_round() -> None:
    declared = first_arguments("ExtensionPoint")
    assert declared == first_arguments("provides", "_provides")
    for name in declared:
        assert callable(resolved(name))


def test_every_name_of_ops_is_registered() -> None:
    assert all(callable(getattr(ops, name)) for name in Ops.__annotations__)
    assert ops.sum is evergrad.ops.rows.reduce.sums.sum


def test_a_function_of_ops_is_declared_and_registered_once() -> None:
    def undeclared() -> None: ...

    with pytest.raises(ValueError, match=r"ops\.undeclared"):
        late_bound(undeclared)
    with pytest.raises(ValueError, match=r"ops\.sum"):
        late_bound(ops.sum)


@pytest.fixture
def empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extension, "_functions", {})
    monkeypatch.setattr(extension, "_providers", {})


@pytest.mark.usefixtures("empty")
def test_a_name_is_provided_once() -> None:
    @provides("one")
    def one() -> int:
        return 1

    assert ExtensionPoint("one")() == 1
    with pytest.raises(ValueError, match="two functions are registered as 'one'"):
        provides("one")(one)


@pytest.mark.usefixtures("empty")
def test_a_provider_is_imported_completely_before_its_function_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second thread finds the function registered while the first still imports the rest."""
    (tmp_path / "slow_provider.py").write_text(
        "import time\n"
        "from evergrad.extension import provides\n"
        "@provides('slow')\n"
        "def slow(): return LATER\n"
        "time.sleep(0.3)\n"
        "LATER = 'defined'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    provided_by({"slow_provider": ("slow",)})
    point: ExtensionPoint[[], str] = ExtensionPoint("slow")
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(point())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del sys.modules["slow_provider"]
    assert found == ["defined"] * 4


def test_start_up_imports_no_package_that_few_programs_use() -> None:
    lazy = ("compiler", "nn", "optim", "sparse", "nested", "array_api", "io", "distributed")
    code = (
        "import sys, evergrad\n"
        f"assert not [n for n in {lazy} if 'evergrad.' + n in sys.modules]\n"
        "assert 'llvmlite' not in sys.modules and 'evergrad.memory.reports' not in sys.modules\n"
        "x = evergrad.ones(3).to_sparse()\n"
        "assert 'evergrad.sparse' in sys.modules and 'evergrad.nested' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
