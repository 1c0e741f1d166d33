"""A graph as text for comparison: one line per equation, the same on every machine.

Values are named after their op and numbered per op, so that a new equation renames few others.
Layouts that are not contiguous are written behind the type as strides in elements.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from evergrad.compiler.codegen.epilogue import Epilogue
from evergrad.core import dtypes
from evergrad.core.rng.generator import Generator
from evergrad.core.shapes import contiguous_strides
from evergrad.core.source_location import describe
from evergrad.core.trace import Equation, Graph, Var
from evergrad.core.views import ViewChain


def dump(graph: Graph, locations: bool = False) -> str:
    """The text of a graph; with ``locations``, each equation ends with its source location."""
    return "\n".join(_Writer(locations).lines(graph))


class _Writer:
    def __init__(self, locations: bool) -> None:
        self.locations = locations
        self.names: dict[Var, str] = {}
        self.counts: Counter[str] = Counter()
        self.generators: dict[int, str] = {}

    def lines(self, graph: Graph) -> list[str]:
        lines = [f"{self.defined(var, 'input')}" for var in graph.inputs]
        lines += [f"{self.defined(var, 'constant')}" for var, _ in graph.captures]
        lines += map(self.equation, graph.equations)
        lines += [f"write {self.value(var)}" for _, var in graph.writes]
        return [*lines, f"return {', '.join(map(self.value, graph.outputs))}"]

    def equation(self, eqn: Equation) -> str:
        given = [self.value(arg) for arg in eqn.args]
        given += [f"{key}={self.value(value)}" for key, value in eqn.attrs.items()]
        outs = ", ".join(self.defined(out, eqn.op.name) for out in eqn.outs)
        where = f"  # {describe(eqn.location)}" if self.locations else ""
        return f"{outs} = {eqn.op.name}({', '.join(given)}){where}"

    def defined(self, var: Var, kind: str) -> str:
        """A value where it is defined: ``%add.3: float32[4,2]{1,4}``."""
        if var not in self.names:
            self.names[var] = f"%{kind}.{self.counts[kind]}"
            self.counts[kind] += 1
        return f"{self.names[var]}: {var.type}{_strides(var)}"

    def value(self, value: object) -> str:
        """An argument, an attribute or an output."""
        if isinstance(value, Var):
            return self.names.get(value, "%undefined")
        if isinstance(value, dtypes.dtype):
            return value.name
        if isinstance(value, Generator):
            return self.generators.setdefault(id(value), f"generator.{len(self.generators)}")
        if isinstance(value, ViewChain):
            views = [f"{op.name}({self.value(attrs)})" for op, attrs in value.ops]
            return f"[{' '.join(views)}]"
        if isinstance(value, dict):
            return ", ".join(f"{key}={self.value(item)}" for key, item in value.items())
        if isinstance(value, Epilogue):
            return repr(value)
        if isinstance(value, tuple) and hasattr(value, "_asdict"):
            return f"{type(value).__name__}({self.value(value._asdict())})"
        if isinstance(value, tuple | list):
            return f"({', '.join(map(self.value, value))}{',' * (len(value) == 1)})"
        return repr(value.item() if isinstance(value, np.generic) else value)


def _strides(var: Var) -> str:
    if var._layout is None:
        return ""
    strides = tuple(stride // var._layout.itemsize for stride in var._layout.strides)
    if strides == contiguous_strides(var.type.shape) or var._layout.flags.c_contiguous:
        return ""
    return f"{{{','.join(map(str, strides))}}}"
