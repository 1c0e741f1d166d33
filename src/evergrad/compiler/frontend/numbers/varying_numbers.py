"""The numbers among the arguments of a function that differ from call to call.

A float that is an argument itself is a :class:`~evergrad.core.python_numbers.PythonNumber` of the
session, so that one program serves all values. An integer, a number of NumPy, or a number in a
container is one as soon as a call passes another value at the same position, and part of the
signature until then. Where the function reads the value itself (as the end of a range, or as a
shape), a number is part of the signature for good.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from evergrad.core.python_numbers import NUMBERS
from evergrad.core.records import children_with_records
from evergrad.core.tree import Fields, TreeSpec

if TYPE_CHECKING:
    from evergrad.core.types import Tree

# The most structures of arguments that are remembered.
_MOST_STRUCTURES = 64


class VaryingNumbers:
    """What is known of the arguments of one compiled function, by their structure: which positions
    vary, which must not, and the numbers of the last call that had no program."""

    def __init__(self) -> None:
        self.varying: dict[TreeSpec, set[int]] = {}
        self.fixed: dict[TreeSpec, set[int]] = {}
        self.last: dict[TreeSpec, dict[int, Any]] = {}
        self.is_off: bool = False

    def positions(self, spec: TreeSpec, leaves: Sequence[object]) -> list[int]:
        """The positions of leaves that are inputs of programs."""
        if self.is_off:
            return []
        found = {n for n in self.varying.get(spec, ()) if type(leaves[n]) in NUMBERS}
        found.update(n for n in _floats(spec, leaves) if n not in self.fixed.get(spec, ()))
        return sorted(found)

    def note(self, spec: TreeSpec, leaves: Sequence[object]) -> bool:
        """Note the numbers of a call that has no program; whether one is found to vary."""
        if self.is_off:
            return False
        if len(self.last) > _MOST_STRUCTURES:
            self.last, self.varying, self.fixed = {}, {}, {}
        numbers = {n: leaf for n, leaf in enumerate(leaves) if type(leaf) in NUMBERS}
        before = self.last.get(spec, {})
        self.last[spec] = numbers
        settled = self.fixed.get(spec, set()) | self.varying.get(spec, set())
        found = {
            n for n, number in numbers.items()
            if n in before and n not in settled and type(before[n]) is type(number)
            and before[n] != number and can_replace(spec, n)
        }  # fmt: skip
        self.varying.setdefault(spec, set()).update(found)
        return bool(found)

    def fix(self, spec: TreeSpec, positions: Collection[int]) -> None:
        """Have values at these positions as parts of signatures."""
        self.varying.get(spec, set()).difference_update(positions)
        self.fixed.setdefault(spec, set()).update(positions)

    def turn_off(self) -> None:
        self.is_off = True
        self.varying = {}


def _floats(spec: TreeSpec, leaves: Sequence[object]) -> Iterator[int]:
    """The positions of the floats that are arguments themselves."""
    position = 0
    for children in spec.children:
        for child in children.children:
            if child.is_leaf() and type(leaves[position]) is float:
                yield position
            position += child.num_leaves


def can_replace(spec: TreeSpec, position: int) -> bool:
    """Whether the leaf at a position can be replaced for the time of a call: all containers around
    it are of known kinds."""
    for child in spec.children:
        if position < child.num_leaves:
            return child.is_leaf() or (_is_known(child) and can_replace(child, position))
        position -= child.num_leaves
    return False


def _is_known(spec: TreeSpec) -> bool:
    return spec.kind in (tuple, list, dict) or hasattr(spec.kind, "_fields") or _is_record(spec)


def _is_record(spec: TreeSpec) -> bool:
    return isinstance(spec.context, Fields)


class Replaced:
    """Arguments with other values for some of their leaves. Lists, dictionaries and records are
    changed in place until :meth:`restore`, tuples made anew."""

    def __init__(self, numbers: dict[int, Any]) -> None:
        self.numbers = numbers
        self.changes: list[
            tuple[Callable[[object], None], Callable[[], object], object, object]
        ] = []

    def replace(self, tree: object, spec: TreeSpec, start: int = 0) -> Any:
        """The tree with its replaced leaves; the first one is at position ``start``."""
        if spec.is_leaf():
            return self.numbers.get(start, tree)
        if not any(start <= n < start + spec.num_leaves for n in self.numbers):
            return tree
        found = children_with_records(tree)
        assert found is not None
        members = []
        for child, member in zip(spec.children, found[1], strict=True):
            members.append(self.replace(member, child, start))
            start += child.num_leaves
        if isinstance(tree, tuple):
            return type(tree)(*members) if hasattr(tree, "_fields") else tuple(members)
        for key, before, after in zip(_keys(tree, spec), found[1], members, strict=True):
            if after is not before:
                self.put(tree, spec, key, before, after)
        return tree

    def put(self, tree: Any, spec: TreeSpec, key: Any, before: object, after: object) -> None:
        if _is_record(spec):  # frozen ones as well
            write: Callable[[Any], None] = lambda value: object.__setattr__(tree, key, value)
            read: Callable[[], Any] = lambda: getattr(tree, key, None)
        else:
            write = lambda value: tree.__setitem__(key, value)
            read = lambda: tree[key] if _has(tree, key) else None
        write(after)
        self.changes.append((write, read, before, after))

    def restore(self) -> None:
        """Let containers hold their own values again, where the function has not changed them."""
        for write, read, before, after in self.changes:
            if read() is after:
                write(before)
        self.changes = []


def _keys(tree: Tree, spec: TreeSpec) -> Iterator[Any]:
    return iter(range(len(tree)) if spec.kind is list else spec.context)


def _has(tree: Any, key: Any) -> bool:
    return key < len(tree) if isinstance(tree, list) else key in tree
