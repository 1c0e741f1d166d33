"""Segments: the parts of a call between two reads of values, run by programs that are cached by
structure.

A segment takes everything from outside as an argument, so that one program serves every call whose
Python records the same equations. The first time a structure is seen it is interpreted; the second
time it is compiled. Constants or shapes that differ at every call therefore cost no compilation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evergrad.compiler.cache.fingerprint import fingerprint_of
from evergrad.compiler.cache.process_bindings import ProcessBindings
from evergrad.compiler.cache.program_lru import ProgramLRU
from evergrad.compiler.frontend.captured import Captured
from evergrad.compiler.frontend.diagnose import failed_lookup
from evergrad.compiler.program_cache import program_of
from evergrad.compiler.runtime.arena import SharedArena
from evergrad.compiler.runtime.program import Program
from evergrad.core.interpret import interpret
from evergrad.core.op import TABLE
from evergrad.core.state import using
from evergrad.core.tensor import from_array
from evergrad.core.trace import Graph
from evergrad.ops.rows.movement.strided import AS_STRIDED

if TYPE_CHECKING:
    from evergrad.core.types import Array, Leaves

# The most structures remembered that were seen once.
_MOST_SEEN = 512


class Segments:
    """The segments of one compiled function."""

    def __init__(self, arena: SharedArena) -> None:
        self.arena = arena
        self.programs: ProgramLRU[str, Program] = ProgramLRU[str, Program]()
        self.seen: dict[str, None] = {}

    def run(self, graph: Graph, arrays: list[Array]) -> Leaves:
        """The outputs of a graph as new arrays."""
        with using(trace=None, grad=False, autocast=None, saved_hooks=None):
            program = self.program_for(graph, arrays)
            if program is None:
                return _interpreted(graph, arrays)
            contiguous = [a if a.flags.c_contiguous else a.copy() for a in arrays]
            try:
                return program.run(contiguous, (), list)  # type: ignore[no-any-return]
            except IndexError as error:
                if not program.status_word[0]:
                    raise
                given = [from_array(array) for array in contiguous]
                raise failed_lookup(graph, given, program.generators()) from error

    def program_for(self, graph: Graph, arrays: list[Array]) -> Program | None:
        """The program of a structure; ``None`` if it is to be interpreted."""
        if any(e.attrs.get("generator") is not None for e in graph.equations):
            return None  # programs are bound to their generators
        if any(e.op is AS_STRIDED for e in graph.equations) and not all(
            a.flags.c_contiguous for a in arrays
        ):
            return None  # reads its argument by strides
        captured = _captured(graph)
        key = fingerprint_of(captured, ProcessBindings(captured), None)
        if key is None:
            return None
        program = self.programs.get(key)
        if program is not None:
            return program
        if key not in self.seen:
            if len(self.seen) >= _MOST_SEEN:
                self.seen.clear()
            self.seen[key] = None
            return None
        program = program_of(captured, None, self.arena)
        self.programs.put(key, program)
        return program

    def clear(self) -> None:
        self.programs.clear()
        self.seen.clear()


def _captured(graph: Graph) -> Captured:
    """A graph as a captured function of its inputs, which have no memory of their own."""
    found = Captured()
    found.graph = graph.with_plain_inputs(len(graph.inputs), TABLE["clone"])
    found.arguments = len(graph.inputs)
    found.result_count = len(graph.outputs)
    return found


def _interpreted(graph: Graph, arrays: list[Array]) -> list[object]:
    found = interpret(graph, *[from_array(array) for array in arrays])
    taken = {id(array) for array in arrays}
    outputs = []
    for tensor in found:
        array = tensor._value
        if tensor._view is not None or id(array) in taken:
            array = array.copy()
        taken.add(id(array))
        outputs.append(array)
    return outputs
