"""Elementwise updates of small tensors by one native loop, whatever their length.

A formula has one loop for each combination of element types, which all parameters of an optimizer
share. What depends on the numbers alone (a learning rate in float32) is computed when they change.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from ctypes import addressof, c_char
from struct import Struct
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core.trace import Graph, Var
from evergrad.core.types import Array
from evergrad.extension import ExtensionPoint

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction

_update_loop: ExtensionPoint[..., Any] = ExtensionPoint("update_loop")

# Larger tensors are updated by several threads.
LOOP_BELOW = 1 << 15
# Loops over fewer elements keep the GIL: releasing it would take as long.
_BRIEF = 1 << 13

_from_buffer: AnyFunction = c_char.from_buffer


class _Numbers(threading.local):
    """The numbers of the last run in one thread, and what the loop is given for them."""

    packed: bytes | None = None
    words: tuple[float, ...] = ()


class UpdateLoop:
    """A traced formula as a loop over arrays of one length."""

    def __init__(self, graph: Graph, tensors: int) -> None:
        arrays, self._inputs = graph.inputs[:tensors], graph.inputs[tensors:]
        self._scalar_equations = [eqn for eqn in graph.equations if not eqn.outs[0].type.shape]
        read: dict[Var, None] = {}
        for eqn in graph.equations:
            if eqn.outs[0].type.shape:
                read.update((a, None) for a in eqn.args if isinstance(a, Var) and not a.type.shape)
        self._read = tuple(read)
        self._pack = Struct(f"{len(self._inputs)}d").pack
        self._numbers = _Numbers()
        # With and without the GIL; None if no code is emitted for the formula.
        self.functions: tuple[Callable[..., None], Callable[..., None]] | None = None
        pairs = zip(graph.outputs, arrays, strict=False)  # arrays that are only read come last
        if all(isinstance(o, Var) and o.type.same(a.type) for o, a in pairs):
            self.functions = _update_loop(graph, tensors, self._read)

    def run(self, arrays: Sequence[Array], numbers: Sequence[object]) -> None:
        """Overwrite the first arrays, one for each output. All are contiguous and not empty."""
        assert self.functions is not None
        state = self._numbers
        packed = self._pack(*numbers)
        if packed != state.packed:
            state.words = self._words(numbers)
            state.packed = packed
        count = arrays[0].size
        self.functions[count >= _BRIEF](
            *[addressof(_from_buffer(array)) for array in arrays], *state.words, count
        )

    def _words(self, numbers: Sequence[Any]) -> tuple[float, ...]:
        values: dict[object, Any] = dict(zip(self._inputs, map(np.float64, numbers), strict=True))
        for eqn in self._scalar_equations:
            given = [values[a] if isinstance(a, Var) else a for a in eqn.args]
            values[eqn.outs[0]] = eqn.specialization.run(*given)
        return tuple([float(values[var]) for var in self._read])
