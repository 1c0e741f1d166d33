"""Bindings of a program to its process, numbered in an order that another process repeats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evergrad.core.source_location import SourceLocation
from evergrad.core.storage import Storage
from evergrad.core.trace import Var

if TYPE_CHECKING:
    from evergrad.compiler.frontend.captured import Captured
    from evergrad.core.trace import Graph
    from evergrad.core.types import Leaves


class ProcessBindings:
    """Of a captured step: its ``graph``; the outside ``storages`` that it reads or writes, each
    once; its random ``generators`` (``None`` for that of the calling thread); the source
    ``locations`` of its equations; the ``constants`` among its outputs (``None`` for what is
    computed).
    """

    graph: Graph

    def __init__(self, captured: Captured) -> None:
        graph = self.graph = captured.graph
        used = [*(tensor._storage for tensor in captured.outside), *captured.written]
        drawn = [e.attrs.get("generator") for e in graph.equations if e.op.random]
        self.storages: list[Storage] = list({id(s): s for s in used}.values())
        self.generators: Leaves = list(dict.fromkeys(drawn))
        self.locations: list[SourceLocation | None] = [eqn.location for eqn in graph.equations]
        self.constants: list[Any | None] = [
            None if isinstance(out, Var) else out for out in graph.outputs
        ]
        self.written: list[Storage] = captured.written
        self.results: int = captured.result_count
        self.numbers: int = len(captured.numbers)
