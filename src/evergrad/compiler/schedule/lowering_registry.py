"""The registry of lowerings: op name to the function that lowers an equation of the op.

Kernels register theirs with :func:`lowers`; :mod:`.kernels.registry` imports all modules that do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from evergrad.core.trace import Equation

if TYPE_CHECKING:
    from evergrad.compiler.schedule.lower import Lowering

# Adds the instructions of an equation, or returns ``False``.
LoweringFunction = Callable[["Lowering", Equation], bool]
Lowerings = Mapping[str, LoweringFunction]

_LOWERINGS: dict[str, LoweringFunction] = {}


def lowers(*names: str) -> Callable[[LoweringFunction], LoweringFunction]:
    """Register the function that lowers equations of these ops."""

    def register(function: LoweringFunction) -> LoweringFunction:
        for name in names:
            assert name not in _LOWERINGS, f"two lowerings of {name}"
            _LOWERINGS[name] = function
        return function

    return register


def registered_lowerings() -> Lowerings:
    """The lowerings registered so far."""
    return _LOWERINGS
