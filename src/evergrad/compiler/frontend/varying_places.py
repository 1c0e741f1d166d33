"""The places whose numbers were changed between two calls of a compiled function."""

from __future__ import annotations

from collections.abc import Iterator

from evergrad.compiler.frontend.find_effects import entries_of
from evergrad.compiler.frontend.identity_guards import MISSING
from evergrad.compiler.frontend.places import StateGuard
from evergrad.compiler.frontend.python_state import PythonState
from evergrad.compiler.frontend.slots import ValueSlot, is_writable
from evergrad.core.python_numbers import NUMBERS


def varied_slots(state: PythonState) -> Iterator[ValueSlot]:
    """The slots that hold another number than when their guards were made."""
    for guard in (*state.guards, *state.module_guards):
        if not guard.holds():
            for slot in _slots_of(guard, state):
                is_number = type(slot.before) in NUMBERS
                if is_number and type(slot.after) is type(slot.before):
                    yield slot


def _slots_of(guard: StateGuard, state: PythonState) -> list[ValueSlot]:
    if guard.key is MISSING:
        return entries_of(guard)
    if not is_writable(guard, state):
        return []
    return [ValueSlot(guard, guard.key, guard.value, state)]
