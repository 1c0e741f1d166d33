"""Identity guards on slots: cells, entries of mappings, and attributes, with their content."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from types import CellType, FunctionType, MappingProxyType
from typing import TYPE_CHECKING, Any

from evergrad.compiler.frontend.guards.identity_guards import MISSING
from evergrad.compiler.frontend.state.places import Slot, read_slot
from evergrad.compiler.frontend.state.raw_reads import class_member, is_a

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction


class SlotGuards:
    """Slots with what they hold when this is made."""

    def __init__(self, slots: Iterable[Slot]) -> None:
        self.cells: list[tuple[CellType, object]] = []
        self.entries: list[tuple[AnyFunction, Any, Any]] = []
        self.attributes: list[tuple[object, str, object]] = []
        self.others: list[tuple[object, object, object]] = []
        for holder, key in slots:
            held = read_slot(holder, key)
            if is_a(holder, CellType) and held is not MISSING:
                self.cells.append((holder, held))
            elif is_a(holder, dict):
                self.entries.append((partial(dict.get, holder), key, held))
            elif is_a(holder, MappingProxyType):
                self.entries.append((holder.get, key, held))
            elif isinstance(key, str) and is_read_by_getattr(holder, key, held):
                self.attributes.append((holder, key, held))
            else:
                self.others.append((holder, key, held))

    def hold(self) -> bool:
        """Whether all slots hold the same objects as when this was made."""
        try:
            for cell, then in self.cells:
                if cell.cell_contents is not then:
                    return False
        except ValueError:  # the cell is empty
            return False
        for get, key, then in self.entries:
            if get(key, MISSING) is not then:
                return False
        for owner, name, then in self.attributes:
            if getattr(owner, name, MISSING) is not then:
                return False
        return all(read_slot(holder, key) is then for holder, key, then in self.others)


def is_read_by_getattr(holder: object, name: str, held: object) -> bool:
    """Whether ``getattr()`` reads a slot without running code of the user's."""
    kind = type(holder)
    if name == "__class__" and class_member(kind, "__class__") is not _CLASS:
        return False
    if is_a(holder, (list, CellType)) or type(kind.__getattribute__) is FunctionType:
        return False
    return held is not MISSING or class_member(kind, "__getattr__") is None


_CLASS = vars(object)["__class__"]
