"""Identity guards on slots: cells, entries of mappings, and attributes, with their content."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import CellType, MappingProxyType
from typing import Any

from evergrad.compiler.frontend.identity_guards import MISSING
from evergrad.compiler.frontend.places import Slot, read_slot


class SlotGuards:
    """Slots with what they hold when this is made."""

    def __init__(self, slots: Iterable[Slot]) -> None:
        self.cells: list[tuple[CellType, Any]] = []
        self.entries: list[tuple[Callable[..., Any], Any, Any]] = []
        self.attributes: list[tuple[Any, str, Any]] = []
        self.others: list[tuple[Any, Any, Any]] = []
        for holder, key in slots:
            held = read_slot(holder, key)
            if isinstance(holder, CellType) and held is not MISSING:
                self.cells.append((holder, held))
            elif isinstance(holder, (dict, MappingProxyType)):
                self.entries.append((holder.get, key, held))
            elif isinstance(key, str) and not isinstance(holder, (list, CellType)):
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
