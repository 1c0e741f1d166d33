"""The registry of lowerings: a row to the function that lowers an equation of the op.

Kernels register theirs with :func:`lowers`; :mod:`.kernels.registry` imports all modules that do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from evergrad.core.op import Op
from evergrad.core.trace import Equation

if TYPE_CHECKING:
    from evergrad.compiler.schedule.lower import Lowering

# Adds the instructions of an equation, or returns ``False``.
LoweringFunction = Callable[["Lowering", Equation], bool]
Lowerings = Mapping[Op, LoweringFunction]

_LOWERINGS: dict[Op, LoweringFunction] = {}


def lowers(*rows: Op) -> Callable[[LoweringFunction], LoweringFunction]:
    """Register the function that lowers equations of these ops."""

    def register(function: LoweringFunction) -> LoweringFunction:
        for row in rows:
            assert row not in _LOWERINGS, f"two lowerings of {row.name}"
            _LOWERINGS[row] = function
        return function

    return register


def registered_lowerings() -> Lowerings:
    """The lowerings registered so far."""
    return _LOWERINGS
