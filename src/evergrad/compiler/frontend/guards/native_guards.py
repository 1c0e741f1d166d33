"""Identity guards evaluated in one native call.

A table has an entry for each place that a program depends on: the place, what it held, and how it
is read. Native code goes through it with functions of CPython's stable ABI, some 12 nanoseconds per
entry of a dictionary and 25 per attribute, half of what a loop in Python takes. Objects are passed
in arrays of ``ctypes.py_object``, which reference them; no layout of objects is known here.

An interpreter without a GIL uses the guards in Python: dictionaries may be resized meanwhile.
"""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache
from itertools import chain
from types import CellType, MappingProxyType
from typing import TYPE_CHECKING, Any

from evergrad.compiler.frontend.guards.identity_guards import MISSING, identity_guard
from evergrad.compiler.frontend.guards.slot_guards import SlotGuards, is_read_by_getattr
from evergrad.compiler.frontend.state.places import KeysSlot, Slot, read_slot
from evergrad.compiler.frontend.state.raw_reads import is_a
from evergrad.compiler.native import jit
from evergrad.memory.ledger import HAS_GIL

if TYPE_CHECKING:
    from evergrad.core.types import Leaves

# How a place is read: an entry of a dictionary, an item of another mapping, a key that a mapping
# does not have, an attribute; the keys and values of a dictionary (any value where it is null), the
# size of a container, the items of a list.
_ENTRY, _ITEM, _ABSENT, _ATTRIBUTE, _DICT, _SIZE, _LIST = range(7)

# A table: [0] number of entries, [1] their kinds, each with the index and the number of its
# members, [2] places, [3] keys, [4] what they held, [5] members of containers.
_IR = r"""
declare ptr @PyDict_GetItemWithError(ptr, ptr)
declare i64 @PyObject_Size(ptr)
declare i32 @PyDict_Next(ptr, ptr, ptr, ptr)
declare ptr @PyObject_GetItem(ptr, ptr)
declare ptr @PyObject_GetAttr(ptr, ptr)
declare i32 @PySequence_Contains(ptr, ptr)
declare i64 @PyList_Size(ptr)
declare ptr @PyList_GetItem(ptr, i64)
declare void @Py_DecRef(ptr)

; Whether every place holds what it held. Returns 0 with an exception set where a read raises.
define i64 @guards_hold(ptr %table) nounwind {
entry:
  %position = alloca i64
  %key_found = alloca ptr
  %value_found = alloca ptr
  %count = load i64, ptr %table
  %p1 = getelementptr ptr, ptr %table, i64 1
  %kinds = load ptr, ptr %p1
  %p2 = getelementptr ptr, ptr %table, i64 2
  %places = load ptr, ptr %p2
  %p3 = getelementptr ptr, ptr %table, i64 3
  %keys = load ptr, ptr %p3
  %p4 = getelementptr ptr, ptr %table, i64 4
  %helds = load ptr, ptr %p4
  %p5 = getelementptr ptr, ptr %table, i64 5
  %all_members = load ptr, ptr %p5
  br label %next
next:
  %n = phi i64 [0, %entry], [%n1, %same]
  %is_done = icmp eq i64 %n, %count
  br i1 %is_done, label %holds, label %read
read:
  %kindp = getelementptr [3 x i64], ptr %kinds, i64 %n
  %kind = load i64, ptr %kindp
  %placep = getelementptr ptr, ptr %places, i64 %n
  %place = load ptr, ptr %placep
  %keyp = getelementptr ptr, ptr %keys, i64 %n
  %key = load ptr, ptr %keyp
  %heldp = getelementptr ptr, ptr %helds, i64 %n
  %held = load ptr, ptr %heldp
  %firstp = getelementptr i64, ptr %kindp, i64 1
  %first = load i64, ptr %firstp
  %sizep = getelementptr i64, ptr %kindp, i64 2
  %size = load i64, ptr %sizep
  %members = getelementptr ptr, ptr %all_members, i64 %first
  switch i64 %kind, label %list [
    i64 0, label %in_dict
    i64 1, label %item
    i64 2, label %absent
    i64 3, label %attribute
    i64 4, label %dict_begin
    i64 5, label %size_of
  ]
in_dict:
  %entry_now = call ptr @PyDict_GetItemWithError(ptr %place, ptr %key)
  %is_entry = icmp eq ptr %entry_now, %held
  br i1 %is_entry, label %same, label %fails
item:
  %item_now = call ptr @PyObject_GetItem(ptr %place, ptr %key)
  br label %own
attribute:
  %attribute_now = call ptr @PyObject_GetAttr(ptr %place, ptr %key)
  br label %own
own:
  %now = phi ptr [%item_now, %item], [%attribute_now, %attribute]
  %raised = icmp eq ptr %now, null
  br i1 %raised, label %fails, label %compare
compare:
  %is_same = icmp eq ptr %now, %held
  call void @Py_DecRef(ptr %now)
  br i1 %is_same, label %same, label %fails
absent:
  %contains = call i32 @PySequence_Contains(ptr %place, ptr %key)
  %is_absent = icmp eq i32 %contains, 0
  br i1 %is_absent, label %same, label %fails
size_of:
  %size_now = call i64 @PyObject_Size(ptr %place)
  %is_size = icmp eq i64 %size_now, %size
  br i1 %is_size, label %same, label %fails
dict_begin:
  store i64 0, ptr %position
  br label %dict_next
dict_next:
  %d = phi i64 [0, %dict_begin], [%d2, %dict_value]
  %more = call i32 @PyDict_Next(ptr %place, ptr %position, ptr %key_found, ptr %value_found)
  %is_end = icmp eq i32 %more, 0
  br i1 %is_end, label %dict_end, label %dict_inside
dict_inside:
  %is_inside = icmp ult i64 %d, %size
  br i1 %is_inside, label %dict_key, label %fails
dict_key:
  %key_now = load ptr, ptr %key_found
  %key_heldp = getelementptr ptr, ptr %members, i64 %d
  %key_held = load ptr, ptr %key_heldp
  %is_key = icmp eq ptr %key_now, %key_held
  br i1 %is_key, label %dict_value, label %fails
dict_value:
  %value_now = load ptr, ptr %value_found
  %d1 = add i64 %d, 1
  %value_heldp = getelementptr ptr, ptr %members, i64 %d1
  %value_held = load ptr, ptr %value_heldp
  %d2 = add i64 %d, 2
  %is_held = icmp eq ptr %value_now, %value_held
  %is_any = icmp eq ptr %value_held, null
  %is_value = or i1 %is_held, %is_any
  br i1 %is_value, label %dict_next, label %fails
dict_end:
  %is_all = icmp eq i64 %d, %size
  br i1 %is_all, label %same, label %fails
list:
  %length = call i64 @PyList_Size(ptr %place)
  %is_length = icmp eq i64 %length, %size
  br i1 %is_length, label %list_next, label %fails
list_next:
  %l = phi i64 [0, %list], [%l1, %list_member]
  %is_last = icmp eq i64 %l, %size
  br i1 %is_last, label %same, label %list_member
list_member:
  %item_at = call ptr @PyList_GetItem(ptr %place, i64 %l)
  %itemp = getelementptr ptr, ptr %members, i64 %l
  %item_held = load ptr, ptr %itemp
  %l1 = add i64 %l, 1
  %is_item = icmp eq ptr %item_at, %item_held
  br i1 %is_item, label %list_next, label %fails
same:
  %n1 = add i64 %n, 1
  br label %next
holds:
  ret i64 1
fails:
  ret i64 0
}
"""


def ir() -> str:
    """The IR of the function that evaluates a table."""
    return _IR


@cache
def _native() -> Callable[[object], int]:
    address = jit.addresses_in(_IR, ("guards_hold",))["guards_hold"]
    return ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address)


def same_objects(
    collections: Iterable[Collection[Any]], slots: Iterable[Slot] = (),
    sized: Iterable[dict[Any, Any]] = (),
) -> Callable[[], bool]:  # fmt: skip
    """A function that returns whether dictionaries and lists have the same members, slots hold the
    same objects, and ``sized`` dictionaries have as many entries, as now. Other collections
    (tuples) are immutable."""
    if not HAS_GIL:
        members_hold, slots_hold = identity_guard(collections), SlotGuards(slots).hold
        sizes = [(len(held), held) for held in sized]
        return lambda: (
            members_hold() and slots_hold() and all([len(held) == n for n, held in sizes])  # noqa: C419
        )
    table = _Table()
    for collection in collections:
        table.add_collection(collection)
    for held in sized:
        table.add_size(held)
    others = [slot for slot in slots if not table.add_slot(*slot)]
    holds = table.guard()
    if not others:
        return holds
    others_hold = SlotGuards(others).hold
    return lambda: holds() and others_hold()


class _Table:
    """The entries of a table while it is built."""

    def __init__(self) -> None:
        self.kinds: list[int] = []
        self.places: Leaves = []
        self.keys: Leaves = []
        self.held: Leaves = []
        self.members: Leaves = []

    def add(
        self, kind: int, place: object, key: object = MISSING, held: object = MISSING,
        members: Sequence[object] = (),
    ) -> None:  # fmt: skip
        self.kinds += kind, len(self.members), len(members)
        self.places.append(place)
        self.keys.append(key)
        self.held.append(held)
        self.members += members

    def add_size(self, place: Collection[object]) -> None:
        self.add(_SIZE, place)
        self.kinds[-1] = len(place)

    def add_collection(self, collection: Collection[object]) -> None:
        if isinstance(collection, list):
            self.add(_LIST, collection, members=collection)
        elif isinstance(collection, dict):
            self.add(_DICT, collection, members=list(chain.from_iterable(dict.items(collection))))

    def add_keys(self, container: Collection[str]) -> bool:
        """Add the keys of a dictionary, or the length of a list."""
        if isinstance(container, list):
            self.add_size(container)
        elif isinstance(container, dict) and not isinstance(container, OrderedDict):
            members = chain.from_iterable((key, MISSING) for key in dict.keys(container))
            self.add(_DICT, container, members=list(members))
        else:
            return False
        return True

    def add_slot(self, place: object, key: str | None) -> bool:
        """Add a slot; false if native code cannot read it."""
        if is_a(place, KeysSlot):
            return self.add_keys(place.container)
        held = read_slot(place, key)
        if is_a(place, dict):
            self.add(_ENTRY, place, key, held)
        elif is_a(place, MappingProxyType):
            self.add(_ABSENT if held is MISSING else _ITEM, place, key, held)
        else:
            name = "cell_contents" if key is None and is_a(place, CellType) else key
            if held is MISSING or not isinstance(name, str):
                return False
            if name != "cell_contents" and not is_read_by_getattr(place, name, held):
                return False
            self.add(_ATTRIBUTE, place, name, held)
        return True

    def guard(self) -> Callable[[], bool]:
        """The function that evaluates the table; it references what the table has."""
        count = len(self.places)
        if not count:
            return lambda: True
        kinds = (ctypes.c_int64 * len(self.kinds))(*self.kinds)
        arrays = [_objects(part) for part in (self.places, self.keys, self.held, self.members)]
        parts = [ctypes.addressof(part) for part in (kinds, *arrays)]
        table = (ctypes.c_int64 * 6)(count, *parts)
        evaluate, address = _native(), ctypes.c_void_p(ctypes.addressof(table))
        kept = kinds, arrays, table

        def holds(kept: object = kept) -> bool:
            try:
                return bool(evaluate(address))
            except (AttributeError, KeyError, ValueError):  # a slot is empty
                return False

        return holds


def _objects(members: Sequence[Any]) -> Any:
    """An array of references; null for what is missing."""
    found = (ctypes.py_object * len(members))()
    for index, member in enumerate(members):
        if member is not MISSING:
            found[index] = member
    return found
