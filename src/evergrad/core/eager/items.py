"""Lists of arrays of different shapes that are combined by one native loop over their runs.

Graphs, traces and derivatives of a row are unchanged; only its evaluation is replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import addressof, c_char
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad import config
from evergrad.core.types import Array
from evergrad.extension import ExtensionPoint
from evergrad.memory import pool

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction

_item_kernel: ExtensionPoint[..., object] = ExtensionPoint("item_kernel")

# Loops over fewer elements keep the GIL: releasing it would take as long.
_BRIEF = 1 << 14


def pair_evaluator(
    name: str, element: np.dtype[np.generic], size: int, runs: Array, plain: AnyFunction
) -> Callable[..., object]:
    """An evaluator by the runs of :func:`~evergrad.ops.rows.movement.item_layouts.pair_runs`;
    ``plain`` for other element types than float32 and float64, and where arrays are not
    contiguous."""
    if element.char not in "fd":
        return plain
    allocate = pool.allocator((size,), element)
    table_address, count = runs.ctypes.data, len(runs)
    from_buffer: AnyFunction = c_char.from_buffer
    functions: Any = None
    function: Any = None

    def run(a: Any, b: Any, held: Array = runs) -> Any:  # held, so that its address stays valid
        nonlocal functions, function
        if functions is None:
            functions = _item_kernel(name, element.itemsize) or False
            function = functions and functions[size >= _BRIEF]
        if not functions or not config.EAGER_KERNELS:
            return plain(a, b)
        if not (a.flags.carray and b.flags.carray and a.size and b.size):
            return plain(a, b)
        out = allocate()
        # As address_of, without three calls: they would take as long as few elements.
        function(
            addressof(from_buffer(out)), addressof(from_buffer(a)), addressof(from_buffer(b)),
            table_address, count,
        )  # fmt: skip
        return out

    return run
