"""The import graph: each package imports only what is below it, function bodies included."""

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
    ("errors", "config", "keywords", "lazy", "extension", "html"),
    ("memory",),
    ("core", "return_types", "interop"),
    ("ops",),
    ("fft", "linalg", "special", "random", "quasirandom", "backends"),
    ("masked", "signal"),
    ("autograd", "func"),
    ("compiler",),
    ("utils", "amp", "array_api", "multiprocessing"),
    ("version", "accelerator", "mps", "profiler", "onnx", "_inductor"),
    ("cuda", "cpu"),
    ("sparse", "nested"),
    ("nn",),
    (
        "jit",
        "_dynamo",
        "overrides",
        "masked_tensor",
        "types",
        "storage",
        "xpu",
        "_tensor",
        "_foreach",
    ),
    (
        "__config__",
        "__future__",
        "_C",
        "_aten",
        "_classes",
        "_jit_internal",
        "_operators",
        "_root",
        "_utils",
    ),
    ("op_schema",),
    ("library", "removed", "fx"),
    ("optim",),
    ("distributed", "distributions"),
    ("futures",),
    ("io", "serialization", "datasets", "transforms", "models", "tokenizers", "testing", "ragged"),
    ("hub", "as_torch"),
    ("train",),
    ("serve",),
    ("cli", "web"),
    ("__main__", "__pyinstaller", "compat"),
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


class Imports(ast.NodeVisitor):
    """The imports of this package in one module, except those for type checkers alone."""

    def __init__(self, path: Path) -> None:
        # What is imported with the module, and what when a function runs: names with their lines.
        self.early: list[tuple[str, int]] = []
        self.late: list[tuple[str, int]] = []
        self.found = self.early
        self.visit(ast.parse(path.read_text()))

    def visit_If(self, node: ast.If) -> None:
        if is_for_types_only(node):
            for other in node.orelse:
                self.visit(other)
        else:
            self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outer, self.found = self.found, self.late
        self.generic_visit(node)
        self.found = outer

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - the name is ast's

    def visit_Import(self, node: ast.Import) -> None:
        self.enter([alias.name for alias in node.names], node.lineno)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if not node.level:  # others stay in their package
            self.enter([f"{node.module}.{alias.name}" for alias in node.names], node.lineno)

    def enter(self, names: list[str], line: int) -> None:
        self.found += [(name, line) for name in names if name.split(".")[0] == "evergrad"]


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_downwards(path: Path) -> None:
    own = layer_of(path)
    assert own in HEIGHT, f"{own} has no place in the layout"
    imports = Imports(path)
    for name, line in imports.early + imports.late:
        layer = (name.split(".") + [""])[1]
        assert layer in HEIGHT, f"{layer}, imported by {path.name}, has no place in the layout"
        assert HEIGHT[layer] <= HEIGHT[own], f"line {line}: {own} must not know {layer} ({name})"


def test_an_import_inside_a_function_is_seen(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        "if TYPE_CHECKING:\n    import evergrad.cli\n"
        "else:\n    import evergrad.core\n"
        "class A:\n    def f(self):\n        if x:\n            from evergrad.nn import Module\n"
        "    async def g(self):\n        return lambda: __import__('os')\n"
        "    import evergrad.errors\n"
    )
    imports = Imports(module)
    assert imports.early == [("evergrad.core", 4), ("evergrad.errors", 11)]
    assert imports.late == [("evergrad.nn.Module", 8)]


def test_few_imports_are_late_and_each_has_a_reason() -> None:
    count = 0
    for path in modules():
        lines = path.read_text().splitlines()
        for line in {line for _, line in Imports(path).late}:
            count += 1
            comment = lines[line - 1].partition("#")[2].partition("noqa")[0].strip(" #")
            assert comment or lines[line - 2].strip().startswith("#"), (
                f"{path}:{line}: say why this import is not at the top"
            )
    assert count < 40


def test_no_large_part_of_the_package_is_one_cycle() -> None:
    """Late imports count too: a cycle of modules can only be understood as a whole."""
    names = {module_name(path): path for path in modules()}
    graph = {name: imported_modules(name, path, names) for name, path in names.items()}
    reached = {name: reachable(name, graph) for name in graph}
    cycles = [{other for other in reached[name] if name in reached[other]} for name in graph]
    largest = max(cycles, key=len)
    assert len(largest) <= 10, sorted(largest)


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[:2] == ("compat", "torch") and parts[2:] != ("__init__",):
        parts = parts[2:]
    return ".".join(("evergrad", *parts)).removesuffix(".__init__")


def imported_modules(name: str, path: Path, names: dict[str, Path]) -> set[str]:
    """The modules of this package that a module imports, without those it is part of."""
    imports = Imports(path)
    found = set()
    for target, _ in imports.early + imports.late:
        while target:
            if target in names and not f"{name}.".startswith(f"{target}."):
                found.add(target)
            target = target.rpartition(".")[0]
    return found


def reachable(start: str, graph: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for name in graph[waiting.pop()] - found:
            found.add(name)
            waiting.append(name)
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imported_names_exist(path: Path) -> None:
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
    ("build",), ("program_cache",), ("frontend",), ("calls",), ("eager", "explain"),
    ("kept_programs",), ("compiled_function",), ("api",), ("stand_ins",),
]  # fmt: skip
ROOM_HEIGHT = {name: height for height, names in enumerate(ROOMS) for name in names}
# Imports of higher rooms that remain: (room, module) and why.
UPWARD: dict[tuple[str, str], str] = {
    ("passes", "runtime.program"): "rematerialization plans a program after every change",
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
        if own == "__init__":  # the door of the package
            continue
        assert own in ROOM_HEIGHT, f"{own} is no room of the compiler: enter it into ROOMS"
        imports = Imports(path)
        for name, _ in imports.early + imports.late:
            if name.startswith("evergrad.compiler."):
                room, target = room_and_module(name)
                if ROOM_HEIGHT[room] > ROOM_HEIGHT[own]:
                    found.add((own, target))
    return found


def test_rooms_of_the_compiler_import_downwards() -> None:
    found = upward_imports_of_rooms()
    assert found <= set(UPWARD), f"new upward imports: {sorted(found - set(UPWARD))}"
    assert found == set(UPWARD), f"gone, remove from UPWARD: {sorted(set(UPWARD) - found)}"
