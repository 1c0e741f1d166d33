"""Write the list of names that PyTorch has and evergrad has not, for packages that import them.

    python tools/list_torch_names.py

Read from the sources of the PyTorch and the torchvision that are installed, without running them;
of torchvision only the modules that evergrad serves. Under ``as_torch`` a name of the list can be
imported; it refuses when it is used, unless a package that re-exports it has it here: then the
list says which (``from``).
"""

from __future__ import annotations

import ast
import textwrap
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from evergrad.datasets.torchvision_names import MODULES

TARGET = Path(__file__).parent.parent / "src/evergrad/compat/torch/as_torch/names_of_torch.txt"
# What only PyTorch itself imports: its compilers, kernels, vendored code and tests.
OWN = (
    "torch._awaits", "torch._custom_op", "torch._decomp", "torch._dynamo.", "torch._export",
    "torch._functorch._", "torch._higher_order_ops.", "torch._inductor.", "torch._lazy",
    "torch._logging._internal",
    "torch._meta_registrations", "torch._native", "torch._numpy", "torch._prims.", "torch._refs",
    "torch._subclasses.", "torch._strobelight", "torch._vendor", "torch.ao.ns", "torch.ao.pruning",
    "torch.distributed._", "torch.distributed.benchmarks", "torch.distributed.elastic",
    "torch.distributed.flight_recorder", "torch.distributed.pipelining", "torch.export._",
    "torch.jit.mobile", "torch.nested._internal",
    "torch.onnx._internal", "torch.package.",
    "torch.sparse._triton", "torch.testing", "torch.utils._sympy",
    "torch.utils.benchmark.examples", "torch.utils.data.datapipes", "torch.utils.hipify",
)  # fmt: skip
ENUMS = {"Enum", "IntEnum", "Flag", "IntFlag", "StrEnum"}


class Names(dict[str, tuple[str, ...]]):
    """The names of a module: what kind each is, and an enumeration's members."""

    def read(self, body: list[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                self[node.name] = kind_of(node)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self[node.name] = ("def",)
            elif isinstance(node, ast.If | ast.Try) and "TYPE_CHECKING" not in ast.dump(node):
                self.read(node.body)
                self.read(node.orelse)


def kind_of(node: ast.ClassDef) -> tuple[str, ...]:
    bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    if bases & ENUMS:
        members = [t.id for n in node.body if isinstance(n, ast.Assign) for t in n.targets
                   if isinstance(t, ast.Name) and not t.id.startswith("_")]  # fmt: skip
        return ("enum", *members)
    if any(base.endswith(("Error", "Exception", "Warning")) for base in bases):
        return ("error",)
    return ("class",)


Place = tuple[str, str]  # a module and a name in it


class Reexports:
    """Which packages re-export a name under itself, and where it is defined."""

    def __init__(self) -> None:
        self.defined: dict[Place, Place] = {}
        self.packages: dict[Place, list[str]] = {}

    def add(self, package: str, name: str, source: str) -> None:
        place = self.defined.get((source, name), (source, name))
        if (package, name) != place and (package, name) not in self.defined:
            self.defined[package, name] = place
            self.packages.setdefault(place, []).append(package)

    def package_that_has(self, module: str, name: str) -> str | None:
        """A module of evergrad that has what PyTorch defines or re-exports at this place."""
        place = self.defined.get((module, name), (module, name))
        packages = sorted(self.packages.get(place, ()), key=lambda package: (len(package), package))
        return next((package for package in packages if is_there(package, name)), None)


REEXPORTS = Reexports()


def read_modules(root: Path) -> dict[str, Names]:
    found: dict[str, Names] = {}
    trees = {}
    for path in sorted([*root.rglob("*.py"), *root.glob("_C/*.pyi")]):
        parts = (root.name, *path.relative_to(root).with_suffix("").parts)
        name = ".".join(parts).removesuffix(".__init__")
        if not name.startswith(OWN):
            trees[name] = ast.parse(path.read_text()), path.stem == "__init__"
    for name, (tree, _) in trees.items():
        found[name] = Names()
        found[name].read(tree.body)
    if root.name == "torch":
        extension = {name: kind for name, kind in found["torch._C"].items() if name[0] != "_"}
        found["torch"] = Names(extension | found["torch"])
    # Packages re-export from each other, so what is deeper comes first, and all come twice.
    for name in 2 * sorted(trees, key=lambda name: -name.count(".")):
        tree, is_package = trees[name]
        if is_package or not found[name]:
            add_reexports(name, tree, found)
    return found


def add_reexports(package: str, tree: ast.Module, modules: dict[str, Names]) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            source = f"{package}.{node.module}" if node.level == 1 else str(node.module)
            if node.names[0].name == "*":
                for name, kind in modules.get(source, Names()).items():
                    if not name.startswith("_"):
                        modules[package].setdefault(name, kind)
                        REEXPORTS.add(package, name, source)
            for alias in node.names:
                kind = modules.get(source, {}).get(alias.name)
                if kind is not None:
                    modules[package].setdefault(alias.asname or alias.name, kind)
                    if alias.asname in (None, alias.name):
                        REEXPORTS.add(package, alias.name, source)


def is_there(module: str, name: str) -> bool:
    path = MODULES.get(module, "evergrad" + module.removeprefix("torch"))
    try:
        return hasattr(import_module(path), name)
    except ImportError:
        return False


def wrapped(*words: str) -> list[str]:
    return textwrap.wrap(" ".join(words), 98, initial_indent="  ", subsequent_indent="    ",
                         break_long_words=False)  # fmt: skip


def write(modules: dict[str, Names]) -> str:
    lines = []
    for module, names in sorted(modules.items()):
        lines.append(module)
        missing = {name: kind for name, kind in names.items() if not is_there(module, name)}
        elsewhere: dict[str, list[str]] = {}
        for name in sorted(missing):
            package = REEXPORTS.package_that_has(module, name)
            if package is not None:
                elsewhere.setdefault(package, []).append(name)
                del missing[name]
        for package, members in sorted(elsewhere.items()):
            lines += wrapped("from", package, *members)
        for kind in ("class", "error", "def"):
            members = sorted(name for name, (own, *_) in missing.items() if own == kind)
            if members:
                lines += wrapped(kind, *members)
        for name, (kind, *members) in missing.items():
            if kind == "enum":
                lines.append(f"  enum {name} {' '.join(members)}".rstrip())
    return "\n".join(lines) + "\n"


def root_of(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{package} is not installed: nothing to read")
    return Path(spec.origin).parent


def main() -> None:
    of_torchvision = read_modules(root_of("torchvision"))
    served = {name: of_torchvision[name] for name in MODULES}
    text = write(read_modules(root_of("torch")) | served)
    TARGET.write_text(text)
    print(f"{TARGET.name}: {len(text.split())} words")


if __name__ == "__main__":
    main()
