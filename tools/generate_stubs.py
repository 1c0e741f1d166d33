"""Write the type stubs of names that are filled in at import, from the signatures themselves.

    python tools/generate_stubs.py [--check]

``evergrad/__init__.pyi`` has the functions of the top level, ``core/tensor_methods.pyi`` what the
op modules attach to :class:`Tensor`, and ``fft``, ``linalg``, ``special``, ``nn.functional`` and
``return_types`` have stubs of their own. ``--check`` only says whether the stubs are up to date.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import pkgutil
import re
import sys
import textwrap
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import evergrad
from evergrad.core import dtypes
from evergrad.core.tensor import Tensor
from evergrad.ops.surface.public import FUNCTIONS

sys.path.insert(0, str(Path(__file__).parent))
from stub_forms import FORMS, KEYWORDS, OPERAND, OPTIONAL, PARAMETERS, WHOLE_FORMS

ROOT = Path(evergrad.__file__).parent
WIDTH = 100
# Where names that the forms use are defined.
HOMES = {
    "Any": ("typing", "Any"),
    "Callable": ("collections.abc", "Callable"),
    "Device": ("evergrad.core.device", "Device"),
    "Generator": ("evergrad.core.rng.default_generator", "Generator"),
    "Layout": ("evergrad.core.memory_format", "layout"),
    "Literal": ("typing", "Literal"),
    "NamedTuple": ("typing", "NamedTuple"),
    "MemoryFormat": ("evergrad.core.memory_format", "memory_format"),
    "Sequence": ("collections.abc", "Sequence"),
    "EllipsisType": ("types", "EllipsisType"),
    "Size": ("evergrad.core.shapes", "Size"),
    "SupportsIndex": ("typing", "SupportsIndex"),
    "Tensor": ("evergrad.core.tensor", "Tensor"),
    "dtype": ("evergrad.core.dtypes", "dtype"),
    "np": ("numpy", ""),
    "overload": ("typing", "overload"),
    "return_types": ("evergrad", "return_types"),
    **{name: ("evergrad.core.types", name) for name in (*OPTIONAL, "Floats", "Ints")},
}


@cache
def names_in(module: str) -> dict[str, tuple[str, str]]:
    """Where each global name of a module comes from: {name: (module, name there)}."""
    found: dict[str, tuple[str, str]] = {}
    source = importlib.import_module(module).__file__
    assert source is not None
    for node in ast.walk(ast.parse(Path(source).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                found[alias.asname or alias.name] = (node.module, alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name] = (alias.name, "")
        elif isinstance(node, ast.ClassDef):
            found.setdefault(node.name, (module, node.name))
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, (module, target.id))
    return found


def home_of(name: str, module: str) -> tuple[str, str]:
    """The definition behind a name of a module, through re-exports."""
    if name in HOMES:
        return HOMES[name]
    there, original = names_in(module)[name]
    if there.startswith("evergrad") and there != module and original:
        names = names_in(there)
        if original in names and names[original][0] != there:
            return home_of(original, there)
    return there, original


class Stub:
    """One file: its lines, and the imports that their annotations need."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.taken = set(taken)  # names of the namespace, which annotations must not meet
        self.lines: list[str] = []
        self._imports: dict[str, tuple[str, str]] = {}

    def annotation(self, text: str, module: str) -> str:
        """An annotation of a module, in names that this file imports."""
        return re.sub(
            r"'[^']*'|\"[^\"]*\"|(?<![\w.])[A-Za-z_]\w*",
            lambda match: self._name(match.group(), module),
            text,
        )

    def _name(self, name: str, module: str) -> str:
        if name[0] in "'\"" or name in ("None", "True", "False"):
            return name
        if name not in HOMES and hasattr(builtins, name):
            home = ("builtins", name)
            if name not in self.taken:
                return name
        else:
            home = home_of(name, module)
        local = f"_{name}" if name in self.taken else name
        self._imports[local] = home
        return local

    def parameters(self, text: str) -> str:
        """Parameters as a form writes them, their annotations in names of this file."""
        function = ast.parse(f"def f({text}): ...").body[0]
        assert isinstance(function, ast.FunctionDef)
        for argument in ast.walk(function.args):
            if isinstance(argument, ast.arg) and argument.annotation is not None:
                said = self.annotation(ast.unparse(argument.annotation), "evergrad.core.tensor")
                argument.annotation = ast.parse(said, mode="eval").body
        return ast.unparse(function.args).replace("=...", " = ...")

    def add(self, *lines: str) -> None:
        self.lines.extend(lines)

    def text(self, doc: str) -> str:
        imports: dict[str, list[str]] = {}
        modules = []
        for local, (module, name) in sorted(self._imports.items()):
            if not name:
                modules.append(f"import {module} as {local}")
            else:
                said = name if name == local else f"{name} as {local}"
                imports.setdefault(module, []).append(said)
        listed = [f"from {m} import {', '.join(sorted(ns))}" for m, ns in sorted(imports.items())]
        head = [
            f'"""{doc}\n\nGenerated by tools/generate_stubs.py; `make stubs` writes it anew.\n"""'
        ]
        return "\n".join([*head, "", *modules, *listed, "", *self.lines]) + "\n"


def docstring(value: Any, indent: str) -> list[str]:
    """The docstring of a function, as lines below its ``def``."""
    doc = inspect.getdoc(value)
    if not doc:
        return []
    body = textwrap.indent(doc.replace("\\", "\\\\").replace('"""', "'''"), indent).rstrip()
    end = f"\n{indent}" if "\n" in body else ""
    return [f'{indent}"""{body.lstrip()}{end}"""']


def write_function(stub: Stub, name: str, function: Callable[..., Any], method: bool) -> None:
    """Declare a function or a method, with each of its forms."""
    forms = _forms(stub, name, function, method)
    indent = "    " if method else ""
    body = docstring(function, indent + "    ")
    for parameters, result in forms:
        if len(forms) > 1:
            stub.add(f"{indent}@{stub.annotation('overload', 'typing')}")
        ignored = "  # type: ignore[override]" if name in ("__eq__", "__ne__") else ""
        stub.add(f"{indent}def {name}({parameters}) -> {result}:{'' if body else ' ...'}{ignored}")
        stub.add(*body)
    stub.add("")


def _forms(
    stub: Stub, name: str, function: Callable[..., Any], method: bool
) -> list[tuple[str, str]]:
    signature = inspect.signature(function)
    plain = name.removesuffix("_") if name not in FORMS else name
    has_out = not method and "out" in signature.parameters
    if plain in WHOLE_FORMS and not method:
        found = WHOLE_FORMS[plain]
    elif plain in FORMS:
        out = "out: Tensor | tuple[Tensor, ...] | None = None"
        first = "self" if method else f"{next(iter(signature.parameters))}: Tensor"
        found = []
        for parameters, result in FORMS[plain]:
            parts = [first, *([parameters] if parameters else [])]
            if has_out:
                starred = "*" in parameters
                parts.append(out if starred else f"*, {out}")
            found.append((", ".join(parts), result))
        if name.endswith("_") and name != plain:
            found = found[:1]
    else:
        return [_signature(stub, name, function, signature, method)]
    return [
        (stub.parameters(p), stub.annotation(r, "evergrad.core.tensor")) for p, r in found
    ]  # fmt: skip


def _result(name: str, said: str, module: str) -> str:
    """The annotation of a result; ``Any`` stands for a named tuple if there is one of that name."""
    from evergrad import return_types

    if said == "Any":
        for kind in (f"linalg_{name}", name) if ".linalg" in module else (name,):
            if not kind.startswith("_") and hasattr(return_types, kind):
                return f"return_types.{kind}"
        if re.fullmatch(r"__\w+__", name) and name not in _OPEN_OPERATORS:
            return "Tensor"
    return said


_OPEN_OPERATORS = {"__reduce_ex__", "__dlpack__", "__array_namespace__"}


def _signature(
    stub: Stub, name: str, function: Any, signature: inspect.Signature, method: bool
) -> tuple[str, str]:
    module = inspect.unwrap(function).__module__
    said = signature.return_annotation
    returns = "Any" if said is inspect.Signature.empty else _result(name, _text(said), module)
    parts: list[str] = []
    keyword_only = False
    first = True
    for parameter in signature.parameters.values():
        kind = parameter.kind
        if kind is parameter.VAR_KEYWORD and parameter.name in KEYWORDS:
            if not keyword_only:
                parts.append("*")
            keyword_only = True
            parts.append(stub.parameters(f"*, {KEYWORDS[parameter.name]}").removeprefix("*, "))
            continue
        if kind is parameter.KEYWORD_ONLY and not keyword_only:
            parts.append("*")
        keyword_only = keyword_only or kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        if first and method:
            parts.append("self")
        else:
            parts.append(_parameter(stub, parameter, module, name))
        if kind is parameter.POSITIONAL_ONLY:
            parts.append("/")
        first = False
    parts = [p for i, p in enumerate(parts) if p != "/" or "/" not in parts[i + 1 :]]
    if "axis" in getattr(function, "keywords", ()):
        parts += _numpy_names(stub, signature, keyword_only)
    return ", ".join(parts), stub.annotation(returns, module)


def _numpy_names(stub: Stub, signature: inspect.Signature, keyword_only: bool) -> list[str]:
    """The names of NumPy that a function takes beside its own."""
    found = [] if keyword_only else ["*"]
    if "dim" in signature.parameters:
        found.append(f"axis: {stub.annotation(PARAMETERS['dim'], 'typing')} = None")
    if "keepdim" in signature.parameters:
        found.append(f"keepdims: {stub.annotation('bool', 'typing')} = False")
    return [] if found in ([], ["*"]) else found


def _text(annotation: Any) -> str:
    if isinstance(annotation, str):
        return annotation
    return "None" if annotation is None else inspect.formatannotation(annotation)


def _parameter(stub: Stub, parameter: inspect.Parameter, module: str, function: str) -> str:
    said = parameter.annotation
    said = "Any" if said in (inspect.Parameter.empty, "object") else _text(said)
    if said == "Any" and function.startswith("__"):
        is_operand = parameter.name == "other" and function not in ("__eq__", "__ne__")
        said = f"{OPERAND} | np.ndarray[Any, Any]" if is_operand else "Any"
    elif said == "Any":
        said = PARAMETERS.get(parameter.name, "Any")
        if parameter.kind is parameter.VAR_POSITIONAL:
            said = {"size": "int | Sequence[int]", "tensors": "Tensor | Sequence[Tensor]"}.get(
                parameter.name, "Any"
            )
    takes_none = "None" in said or said in (*OPTIONAL, "Any")
    if parameter.default is None and not takes_none:
        said += " | None"
    star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    # A size is given by position, one number each or all at once, or as size=.
    name = "sizes" if star == "*" and parameter.name == "size" else parameter.name
    text = f"{star}{name}: {stub.annotation(said, module)}"
    if parameter.default is inspect.Parameter.empty:
        return text
    plain = isinstance(parameter.default, (int, float, str, bool, type(None)))
    empty = parameter.default == ()
    return f"{text} = {parameter.default!r}" if plain or empty else f"{text} = ..."


# -- the files ----------------------------------------------------------------------------------


def tensor_methods() -> str:
    source = ast.parse((ROOT / "core/tensor.py").read_text())
    tensor = next(n for n in source.body if isinstance(n, ast.ClassDef) and n.name == "Tensor")
    declared = {n.name for n in tensor.body if isinstance(n, ast.FunctionDef)}
    declared |= {"__module__", "__hash__", "__init_subclass__", "nelement"}
    members = {n: v for n, v in vars(Tensor).items() if n not in declared}
    stub = Stub([*members, *declared, "Tensor"])
    stub.taken.discard("Tensor")
    stub.add("class TensorMethods:")
    stub.add(
        '    """What the op modules attach to tensors: operators, methods and attributes."""', ""
    )
    for name in sorted(members):
        value = members[name]
        if isinstance(value, property):
            _write_property(stub, name, value)
        elif inspect.isfunction(value):
            write_function(stub, name, value, method=True)
    return stub.text("The methods of tensors, as the op modules attach them.")


def _write_property(stub: Stub, name: str, value: property) -> None:
    assert value.fget is not None
    said = value.fget.__annotations__.get("return")
    module = value.fget.__module__
    if said is None:
        said = "Layout" if name == "layout" else "bool" if name.startswith("is_") else "Any"
    result = stub.annotation(_text(said), module)
    marker = "_property" if "property" in stub.taken else "property"
    stub.add(f"    @{marker}", f"    def {name}(self) -> {result}:")
    stub.add(*(docstring(value, "        ") or ["        ..."]))
    if value.fset is not None:
        stub.add(f"    @{name}.setter", f"    def {name}(self, value: {result}) -> None: ...")
    stub.add("")


def namespace(path: str, doc: str) -> str:
    """A module of functions: ``evergrad.fft`` and the like."""
    module = importlib.import_module(f"evergrad.{path}")
    stub = Stub(module.__all__)
    stub.add(f"__all__ = {_listed(module.__all__)}", "")
    for name in sorted(module.__all__):
        value = getattr(module, name)
        if inspect.isclass(value):
            stub.add(f"from {value.__module__} import {name} as {name}", "")
        else:
            write_function(stub, name, value, method=False)
    return stub.text(doc)


def _listed(names: Iterable[str]) -> str:
    text = textwrap.fill(", ".join(f'"{n}"' for n in sorted(names)), WIDTH - 6)
    return "[\n" + textwrap.indent(text, "    ") + ",\n]"


def return_types() -> str:
    from evergrad import return_types as module

    kinds = {
        n: v
        for n, v in vars(module).items()
        if isinstance(v, type) and v.__module__ == module.__name__
    }
    stub = Stub(())
    lines = stub.lines
    stub.annotation("Tensor NamedTuple", "")
    for name in sorted(kinds):
        lines.append(f"class {name}(NamedTuple):")
        for field in kinds[name]._fields:
            several = (name, field) == ("histogramdd", "bin_edges")
            lines.append(f"    {field}: {'tuple[Tensor, ...]' if several else 'Tensor'}")
        lines.append("")
    return stub.text("Named results of functions that return several tensors.")


def top_level() -> str:
    source = ast.parse((ROOT / "__init__.py").read_text())
    public = set(evergrad.__all__)
    packages = _packages()
    stub = Stub({*public, *packages})
    for node in source.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                local = alias.asname or alias.name
                if local in public:
                    stub.add(f"from {node.module} import {alias.name} as {local}")
    for home, names in sorted(evergrad._LAZY.items()):
        place = f"{_packages(private=True)[home.split('.')[0]]}.{home}"
        stub.add(*(f"from {place} import {n} as {n}" for n in sorted(names) if n in public))
    stub.add(*(f"from {place} import {name} as {name}" for name, place in sorted(packages.items())))
    stub.add("", f"__all__ = {_listed(public)}", "", "__version__: " + stub.annotation("str", ""))
    for name in ("e", "inf", "nan", "pi"):
        stub.add(f"{name}: {stub.annotation('float', '')}")
    stub.add("newaxis: None", f"default_generator: {stub.annotation('Generator', '')}")
    for name in sorted({**dtypes.BY_NAME, **dtypes.ALIASES}):
        stub.add(f"{name}: {stub.annotation('dtype', '')}")
    stub.add("")
    for name in sorted(FUNCTIONS):
        value = FUNCTIONS[name]
        if isinstance(value, type(FUNCTIONS["FloatTensor"])) and not inspect.isfunction(value):
            stub.add(f"{name}: {stub.annotation('LegacyType', 'evergrad.ops.surface.legacy')}", "")
        elif inspect.isclass(value):  # a storage of one element type
            stub.add(f"class {name}(TypedStorage): ...", "")
        else:
            write_function(stub, name, value, method=False)
    for name in evergrad._IN_PLACE:
        write_function(stub, name, getattr(Tensor, name), method=False)
    return stub.text("Tensors, exact gradients and accounted memory, with PyTorch's names.")


def _packages(*, private: bool = False) -> dict[str, str]:
    """The packages that are attributes: {name: the package that has it}."""
    compat = ROOT / "compat" / "torch"
    found = {m.name: "evergrad.compat.torch" for m in pkgutil.iter_modules([str(compat)])}
    found |= {m.name: "evergrad" for m in pkgutil.iter_modules([str(ROOT)])}
    hidden = {"lazy", "extension", "as_torch", "html", "config"}
    return {n: p for n, p in found.items() if private or (n[0] != "_" and n not in hidden)}


def stubs() -> dict[str, str]:
    return {
        "__init__.pyi": top_level(),
        "core/tensor_methods.pyi": tensor_methods(),
        "fft.pyi": namespace("fft", "Discrete Fourier transforms."),
        "linalg.pyi": namespace("linalg", "Linear algebra on matrices and stacks of them."),
        "nn/functional.pyi": namespace("nn.functional", "The functions of neural networks."),
        "return_types.pyi": return_types(),
        "special.pyi": namespace("special", "Special functions."),
    }


def main() -> None:
    written = stubs()
    stale = [
        name
        for name, text in written.items()
        if not (ROOT / name).exists() or (ROOT / name).read_text() != text
    ]
    if "--check" in sys.argv[1:]:
        if stale:
            sys.exit(f"out of date: {', '.join(stale)}; run `make stubs`")
        return
    for name in stale:
        (ROOT / name).write_text(written[name])
    print(f"{len(written)} stubs, {len(stale)} rewritten")


if __name__ == "__main__":
    main()
