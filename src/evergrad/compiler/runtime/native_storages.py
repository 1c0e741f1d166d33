"""Storages that are made and freed natively, with their entries in the ledger.

Python takes half a microsecond to make a storage and as long to free it, which is a good part of a
small step. Both are as in :mod:`evergrad.core.storage`; where somebody observes allocations, or the
bytes belong to a category, Python frees the storage as ever.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from evergrad.compiler.native import jit
from evergrad.compiler.native.builtin import keep_forever, method, type_slot
from evergrad.compiler.native.object_words import TABLE_TEXT, WORD_TEXT, slot_of, table
from evergrad.compiler.schedule.instructions import address_of
from evergrad.core.storage import Storage
from evergrad.memory.ledger import LEDGER, Ledger

# Words of the table: where the ledger has [0] its live bytes, [1] the number of storages, [2] the
# peak, [3] its observer; [4] None, [5] zero, [6] False, [7] the class of storages, [8] what makes
# them, [9] an empty tuple, [10] Python's function for one that dies; then how far from their
# beginning they have [11] value, [12] type, [13] bytes, [14] version, [15] category, [16] whether
# they were saved, [17] are shared.
TEXT = (
    TABLE_TEXT
    + WORD_TEXT
    + r"""
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare i64 @PyLong_AsLongLong(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyObject_CallFunctionObjArgs(ptr, ...)

; Lets a slot that is empty hold an object; a word of the table tells where it lies.
define internal void @hold(ptr %object, ptr %table, i64 %which, ptr %held) alwaysinline nounwind {
  %distance = call i64 @entry(ptr %table, i64 %which)
  %at = getelementptr i8, ptr %object, i64 %distance
  call void @Py_IncRef(ptr %held)
  store ptr %held, ptr %at
  ret void
}

; Adds to a number; gives what it was before.
define internal i64 @count(ptr %place, i64 %added) nounwind {
  %old = load ptr, ptr %place
  %before = call i64 @PyLong_AsLongLong(ptr %old)
  %after = add i64 %before, %added
  %new = call ptr @PyLong_FromLongLong(i64 %after)
  store ptr %new, ptr %place
  call void @Py_DecRef(ptr %old)
  ret i64 %before
}

; A storage of an array, with its bytes as an object and as a number; null, with an error, if there
; is no memory.
define internal ptr @storage_of(ptr %table, ptr %value, ptr %type, ptr %size, i64 %bytes) nounwind {
entry:
  %livep = call ptr @address(ptr %table, i64 0)
  %countp = call ptr @address(ptr %table, i64 1)
  %peakp = call ptr @address(ptr %table, i64 2)
  %zero = call ptr @address(ptr %table, i64 5)
  %false = call ptr @address(ptr %table, i64 6)
  %class = call ptr @address(ptr %table, i64 7)
  %new = call ptr @address(ptr %table, i64 8)
  %nothing = call ptr @address(ptr %table, i64 9)
  %storage = call ptr %new(ptr %class, ptr %nothing, ptr null)
  %failed = icmp eq ptr %storage, null
  br i1 %failed, label %end, label %fill
fill:
  call void @hold(ptr %storage, ptr %table, i64 11, ptr %value)
  call void @hold(ptr %storage, ptr %table, i64 12, ptr %type)
  call void @hold(ptr %storage, ptr %table, i64 13, ptr %size)
  call void @hold(ptr %storage, ptr %table, i64 14, ptr %zero)
  call void @hold(ptr %storage, ptr %table, i64 15, ptr %zero)
  call void @hold(ptr %storage, ptr %table, i64 16, ptr %false)
  call void @hold(ptr %storage, ptr %table, i64 17, ptr %false)
  %before = call i64 @count(ptr %livep, i64 %bytes)
  %counted = call i64 @count(ptr %countp, i64 1)
  %live = add i64 %before, %bytes
  %old_peak = load ptr, ptr %peakp
  %peak = call i64 @PyLong_AsLongLong(ptr %old_peak)
  %is_more = icmp sgt i64 %live, %peak
  br i1 %is_more, label %raise, label %end
raise:
  %new_peak = load ptr, ptr %livep
  call void @Py_IncRef(ptr %new_peak)
  store ptr %new_peak, ptr %peakp
  call void @Py_DecRef(ptr %old_peak)
  br label %end
end:
  ret ptr %storage
}
"""
)

_FREED = r"""
@storages = internal global ptr null

define void @know(ptr %table) nounwind {
  store ptr %table, ptr @storages
  ret void
}

define ptr @freed(ptr %storage, ptr %ignored) nounwind {
entry:
  %table = load ptr, ptr @storages
  %livep = call ptr @address(ptr %table, i64 0)
  %countp = call ptr @address(ptr %table, i64 1)
  %observerp = call ptr @address(ptr %table, i64 3)
  %none = call ptr @address(ptr %table, i64 4)
  %zero = call ptr @address(ptr %table, i64 5)
  %to_size = call i64 @entry(ptr %table, i64 13)
  %to_category = call i64 @entry(ptr %table, i64 15)
  %observer = load ptr, ptr %observerp
  %category = call ptr @word(ptr %storage, i64 %to_category)
  %size = call ptr @word(ptr %storage, i64 %to_size)
  %unobserved = icmp eq ptr %observer, %none
  %untagged = icmp eq ptr %category, %zero
  %is_sized = icmp ne ptr %size, null
  %a = and i1 %unobserved, %untagged
  %is_usual = and i1 %a, %is_sized
  br i1 %is_usual, label %natively, label %in_python
natively:
  %bytes = call i64 @PyLong_AsLongLong(ptr %size)
  %less = sub i64 0, %bytes
  %before = call i64 @count(ptr %livep, i64 %less)
  %counted = call i64 @count(ptr %countp, i64 -1)
  call void @Py_IncRef(ptr %none)
  ret ptr %none
in_python:
  %function = call ptr @address(ptr %table, i64 10)
  %result = call ptr (ptr, ...)
      @PyObject_CallFunctionObjArgs(ptr %function, ptr %storage, ptr null)
  ret ptr %result
}
"""
FREED_TEXT = TEXT + _FREED


@cache
def storages() -> int:
    """The address of the table; from now on storages are freed natively."""
    in_python: Any = Storage.__dict__["__del__"]
    slots = [
        slot_of(Storage, name)
        for name in ("value", "type", "nbytes", "version", "category", "saved", "shared")
    ]
    words = table([
        *(id(LEDGER) + slot_of(Ledger, name) for name in ("live", "count", "peak", "observer")),
        id(None), id(0), id(False), id(Storage), type_slot(Storage, "new"), id(()), id(in_python),
        *slots,
    ])  # fmt: skip
    keep_forever(words, in_python, LEDGER)  # the last storages die after all modules
    addresses = jit.addresses_in(FREED_TEXT, ("know", "freed"))
    jit.function_of(addresses["know"], ctypes.c_void_p)(address_of(words))
    Storage.__del__ = method(Storage, "__del__", addresses["freed"])  # type: ignore[method-assign]
    return address_of(words)
