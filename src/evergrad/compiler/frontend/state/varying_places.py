"""The places whose numbers were changed between two calls of a compiled function."""

from __future__ import annotations

from collections.abc import Iterator

from evergrad.compiler.frontend.effects.find_effects import entries_of
from evergrad.compiler.frontend.guards.identity_guards import MISSING
from evergrad.compiler.frontend.numbers.number_trees import numbers_in
from evergrad.compiler.frontend.state.places import StateGuard, same
from evergrad.compiler.frontend.state.python_state import PythonState
from evergrad.compiler.frontend.state.slots import ValueSlot, is_writable
from evergrad.core.python_numbers import NUMBERS
from evergrad.core.tree import tree_flatten


def varied_slots(state: PythonState) -> Iterator[tuple[ValueSlot, bool]]:
    """The slots that hold another number than when their guards were made, or another container of
    numbers with the same structure; and whether it is a container."""
    for guard in (*state.guards, *state.module_guards):
        if not guard.holds():
            for slot in _slots_of(guard, state):
                before, after = slot.before, slot.after
                if type(before) in NUMBERS and type(after) is type(before):
                    yield slot, False
                elif before is not after and _is_alike(before, after):
                    yield slot, True


def _is_alike(before: object, after: object) -> bool:
    """Whether two containers have numbers of the same types in the same places, and are the same
    but for these."""
    numbers = numbers_in(before)
    if not numbers or numbers != numbers_in(after):
        return False
    (leaves, spec), (others, other_spec) = tree_flatten(before), tree_flatten(after)
    pairs = enumerate(zip(leaves, others, strict=False))
    return spec == other_spec and all(
        type(then) is type(now) if n in numbers else same(now, then) for n, (then, now) in pairs
    )


def _slots_of(guard: StateGuard, state: PythonState) -> list[ValueSlot]:
    if guard.key is MISSING:
        return entries_of(guard)
    if not is_writable(guard, state):
        return []
    return [ValueSlot(guard, guard.key, guard.value, state)]
