"""Tuples, lists and dictionaries of numbers that a function replaces, such as the rates of a
schedule: a copy with run-time numbers stands in for them while the function runs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from evergrad.compiler.frontend.session import Session
from evergrad.compiler.frontend.state.places import plain_numbers, read_slot
from evergrad.compiler.frontend.state.slots import ValueSlot
from evergrad.core.python_numbers import PythonNumber
from evergrad.core.tree import tree_flatten, tree_unflatten

_KINDS = (tuple, list, dict)


def paths_in(value: Any, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """The keys that lead to the leaves of a tree, in their order."""
    if type(value) not in _KINDS:
        return [path]
    pairs = value.items() if type(value) is dict else enumerate(value)
    return [found for key, held in pairs for found in paths_in(held, (*path, key))]


def numbers_in(value: object) -> list[int]:
    """The indices of the numbers among the leaves of a tree of plain containers."""
    leaves, _ = tree_flatten(value)
    if type(value) not in _KINDS or len(paths_in(value)) != len(leaves):
        return []
    return [index for index, leaf in enumerate(leaves) if type(leaf) in (int, float)]


class NumberTree:
    """The stand-in for a tree in a slot, with the numbers in it by the index of the leaf."""

    def __init__(self, slot: ValueSlot, session: Session) -> None:
        self.held = slot.before
        leaves, spec = tree_flatten(slot.before)
        paths = paths_in(slot.before)
        source = frozenset([slot.identity])
        self.numbers: dict[int, PythonNumber] = {}
        for index in numbers_in(slot.before):
            read = _reader(slot.place, slot.key, paths[index])
            number = PythonNumber(session, session.expressions, leaves[index], read, source)
            self.numbers[index] = leaves[index] = number
        self.leaves, self.spec = leaves, spec
        self.copy = tree_unflatten(leaves, spec)

    def is_changed(self) -> bool:
        """Whether the function has changed what stands in for the tree."""
        leaves, spec = tree_flatten(self.copy)
        return spec != self.spec or not all(map(operator.is_, leaves, self.leaves))

    def originals(self) -> dict[int, object]:
        """The containers of the tree, by the ids of those that stand in for them."""
        found: dict[int, Any] = {}
        _pair(self.copy, self.held, found)
        return found

    def write_back(self) -> None:
        """Let the tree itself have what the function has changed."""
        if self.is_changed():
            _write_back(self.held, plain_numbers(self.copy))


def _reader(place: object, key: object, path: Sequence[object]) -> Callable[[], object]:
    def read() -> Any:
        held = read_slot(place, key)
        for part in path:
            held = held[part]
        return held

    return read


def _pair(copy: Any, held: Any, found: dict[int, object]) -> None:
    if type(held) is not type(copy) or type(held) not in _KINDS:
        return
    found[id(copy)] = held
    keys = held if type(held) is dict else range(min(len(held), len(copy)))
    for key in keys:
        if type(held) is not dict or key in copy:
            _pair(copy[key], held[key], found)


def _write_back(held: Any, copy: Any) -> object:
    """The container with the members of a copy; containers in both stay what they are."""
    if type(held) is not type(copy) or type(held) not in _KINDS:
        return copy
    if type(held) is dict:
        members = {k: _write_back(held.get(k), v) for k, v in copy.items()}
        held.clear()
        held.update(members)
        return held
    known = [*held, *[None] * max(0, len(copy) - len(held))]
    found = [_write_back(a, b) for a, b in zip(known, copy, strict=False)]
    if type(held) is list:
        held[:] = found
        return held
    return held if all(map(operator.is_, found, held)) else tuple(found)
