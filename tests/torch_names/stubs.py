"""The signatures that PyTorch's type stubs and operator schemas state, one list per name."""

from __future__ import annotations

import ast
import functools
import inspect
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

EMPTY = inspect.Parameter.empty
UNKNOWN = object()  # a default that the stub does not state: `...`


@dataclass(frozen=True)
class Argument:
    """One parameter of an overload."""

    name: str
    default: Any = EMPTY
    by_name_only: bool = False
    variadic: bool = False


Overload = tuple[Argument, ...]
Signatures = dict[str, list[Overload]]


def _default(node: ast.expr | None) -> Any:
    if node is None:
        return EMPTY
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return UNKNOWN
    return UNKNOWN if value is ... else value


def _overload(function: ast.FunctionDef) -> Overload:
    given = function.args
    plain = [*given.posonlyargs, *given.args]
    padding: list[ast.expr | None] = [None] * (len(plain) - len(given.defaults))
    found = [
        Argument(a.arg, _default(d))
        for a, d in zip(plain, [*padding, *given.defaults], strict=True)
    ]
    if given.vararg:
        found.append(Argument(given.vararg.arg, variadic=True))
    found += [
        Argument(a.arg, _default(d), by_name_only=True)
        for a, d in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    ]
    return tuple(found)


def _collect(body: list[ast.stmt]) -> Signatures:
    found: Signatures = {}
    for node in body:
        if isinstance(node, ast.FunctionDef):
            found.setdefault(node.name, []).append(_overload(node))
    return found


def _parse(torch: ModuleType, *path: str) -> list[ast.stmt]:
    folder = Path(torch.__file__ or "").parent
    return ast.parse(folder.joinpath(*path).read_text()).body


@functools.cache
def functions(torch: ModuleType) -> Signatures:
    """``torch.<name>``."""
    return _collect(_parse(torch, "_C", "_VariableFunctions.pyi"))


@functools.cache
def methods(torch: ModuleType) -> Signatures:
    """``Tensor.<name>``."""
    body = _parse(torch, "_C", "__init__.pyi")
    base = next(n for n in body if isinstance(n, ast.ClassDef) and n.name == "TensorBase")
    return _collect(base.body)


def functional(torch: ModuleType) -> Signatures:
    """``torch.nn.functional.<name>``."""
    return _collect(_parse(torch, "nn", "functional.pyi"))


def schemas(torch: ModuleType, namespace: str) -> Signatures:
    """``torch.linalg.<name>`` and the like, from the schemas of their operators."""
    found: Signatures = {}
    for name in dir(getattr(torch, namespace)):
        packet = getattr(torch.ops.aten, f"{namespace}_{name}", None)
        if not name.startswith("_") and packet is not None:
            each = [getattr(packet, overload)._schema for overload in packet.overloads()]
            found[name] = [_from_schema(schema) for schema in each]
    return found


def _from_schema(schema: Any) -> Overload:
    found = [
        Argument(
            "input" if a.name == "self" else a.name,
            a.default_value if a.has_default_value() else EMPTY,
            by_name_only=a.kwarg_only,
        )
        for a in schema.arguments
        if not a.is_out
    ]
    if any(a.is_out for a in schema.arguments):
        found.append(Argument("out", by_name_only=True))
    return tuple(found)
