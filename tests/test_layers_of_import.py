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


# The rooms of the compiler, from the bottom up; names on one line may import each other.
ROOMS: list[tuple[str, ...]] = [
    ("native",), ("codegen",), ("schedule",), ("kernels",), ("passes",), ("cache",), ("runtime",),
    ("frontend",), ("eager", "explain"), ("api",),
]  # fmt: skip
ROOM_HEIGHT = {name: height for height, names in enumerate(ROOMS) for name in names}
# Imports of higher rooms that remain: (room, module) and why.
UPWARD: dict[tuple[str, str], str] = {
    ("kernels", "passes.conv_epilogue"): "the op of a fused convolution is defined with its pass",
    ("passes", "runtime.program"): "rematerialization plans a program after every change",
    ("cache", "runtime.program"): "a miss of the program cache builds a program",
    ("cache", "frontend.capture"): "a program is stored under the name of its captured step",
    ("runtime", "frontend.outputs"): "a call delivers its outputs",
    ("runtime", "frontend.variant"): "a call runs a variant of a compiled function",
    ("runtime", "api"): "a loop is over a compiled function",
    ("frontend", "api"): "a compiled function may be called while another is traced",
}


def room_and_module(name: str) -> tuple[str, str]:
    """The room of the compiler that a dotted name is in, and its module without the prefix."""
    parts = name.split(".")[2:]
    while not (ROOT / "compiler" / "/".join(parts)).with_suffix(".py").exists():
        parts.pop()  # a name in a module
    return parts[0], ".".join(parts)


def upward_imports_of_rooms() -> set[tuple[str, str]]:
    """Imports of higher rooms of the compiler, function bodies included."""
    found = set()
    for path in sorted((ROOT / "compiler").rglob("*.py")):
        own = path.relative_to(ROOT / "compiler").parts[0].removesuffix(".py")
        tree = ast.parse(path.read_text())
        typed = [node for node in ast.walk(tree) if isinstance(node, ast.If)]
        ignored = {id(n) for node in typed if is_for_types_only(node) for n in ast.walk(node)}
        for node in ast.walk(tree):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            if not module.startswith("evergrad.compiler") or id(node) in ignored:
                continue
            if own == "__init__":  # the door of the package
                continue
            assert own in ROOM_HEIGHT, f"{own} is no room of the compiler: enter it into ROOMS"
            for alias in node.names:  # type: ignore[attr-defined]
                room, target = room_and_module(f"{module}.{alias.name}")
                if ROOM_HEIGHT[room] > ROOM_HEIGHT[own]:
                    found.add((own, target))
    return found


def test_rooms_of_the_compiler_import_downwards() -> None:
    found = upward_imports_of_rooms()
    assert found <= set(UPWARD), f"new upward imports: {sorted(found - set(UPWARD))}"
    assert found == set(UPWARD), f"gone, remove from UPWARD: {sorted(set(UPWARD) - found)}"
