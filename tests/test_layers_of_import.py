"""Who may import whom: each package only what stands above it in the layout."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import evergrad

ROOT = Path(evergrad.__file__).parent

# From the bottom up; names on one line may import each other.
LAYERS: list[tuple[str, ...]] = [
    ("errors", "config", "lazy"),
    ("memory",),
    ("core", "return_types", "interop"),
    ("ops",),
    ("fft", "linalg", "special", "random", "backends"),
    ("autograd", "func"),
    ("compiler",),
    ("utils", "amp", "array_api", "multiprocessing"),
    ("version", "accelerator", "mps", "profiler", "onnx", "_dynamo", "_inductor"),
    ("cuda", "cpu"),
    ("sparse", "nested"),
    ("nn",),
    ("jit",),
    ("optim",),
    ("distributed", "distributions"),
    ("io", "serialization", "datasets", "transforms", "models", "tokenizers", "testing"),
    ("as_torch",),
    ("train",),
    ("cli", "web"),
    ("__main__", "compat"),
]
HEIGHT = {name: height for height, names in enumerate(LAYERS) for name in names}
# The package itself gathers what stands up to here; whoever stands above may import it whole.
HEIGHT[""] = HEIGHT["func"] + 1


def modules() -> list[Path]:
    return sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def layer_of(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    is_stand_in = parts[:2] == ("compat", "torch") and len(parts) > 2 and parts[2] != "__init__.py"
    return parts[2 if is_stand_in else 0].removesuffix(".py")  # imported as evergrad.<name>


def is_for_types_only(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def imported_at_start(body: list[ast.stmt]) -> list[str]:
    """Modules of this package that are imported when a module is; not those inside functions."""
    found: list[str] = []
    for node in body:
        if is_for_types_only(node) or isinstance(node, ast.FunctionDef):
            continue
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{node.module}.{alias.name}" for alias in node.names if not node.level]
        for field in ("body", "orelse", "finalbody", "handlers"):
            found += imported_at_start(getattr(node, field, []))
    return [name for name in found if name.split(".")[0] == "evergrad"]


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_downwards(path: Path) -> None:
    own = layer_of(path)
    assert own in HEIGHT, f"{own} has no place in the layout"
    for name in imported_at_start(ast.parse(path.read_text()).body):
        layer = (name.split(".") + [""])[1]
        assert layer in HEIGHT, f"{layer}, imported by {path.name}, has no place in the layout"
        assert HEIGHT[layer] <= HEIGHT[own], f"{own} must not know {layer} ({name})"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_names_imported_late_exist(path: Path) -> None:
    """An import inside a function fails only when it is reached, so it is tried here."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("evergrad"):
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                found = hasattr(module, alias.name) or importlib.util.find_spec(submodule)
                assert found, f"line {node.lineno}: {node.module} has no {alias.name}"


FOREIGN = {"torch", "scipy", "jax", "tensorflow", "pytest", "hypothesis"}


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_references_are_not_imported(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        assert not FOREIGN & {name.split(".")[0] for name in names}, path


def test_importing_the_package_warns_of_nothing_and_loads_no_reference() -> None:
    code = (
        "import sys, evergrad, evergrad.func, evergrad.autograd\n"
        f"assert not [name for name in {sorted(FOREIGN)!r} if name in sys.modules]"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_are_absolute(path: Path) -> None:
    """But for the stand-ins of PyTorch's names, which are imported by another name than their
    place."""
    if path.is_relative_to(ROOT / "compat" / "torch"):
        return
    for node in ast.walk(ast.parse(path.read_text())):
        assert not isinstance(node, ast.ImportFrom) or node.level == 0, node.lineno
