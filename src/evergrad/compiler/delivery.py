"""The end of a call, natively: writes are counted and results become tensors.

Does what :func:`evergrad.core.tensor.fresh` and ``Storage`` do, by the words of the objects
(:mod:`.object_words`). If somebody observes the ledger, Python does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

from evergrad.compiler import llvm
from evergrad.compiler.builtin import builtin
from evergrad.compiler.kernel import address_of
from evergrad.compiler.object_words import slot_of, table
from evergrad.core.shapes import TensorType
from evergrad.core.storage import Storage
from evergrad.core.tensor import Tensor, fresh
from evergrad.memory.ledger import LEDGER, Ledger

# What gives the array of a result, and the result's type.
Source = tuple[Callable[[], Any], TensorType]

# What each new object holds besides its array, its type and its storage or size.
_OF_TENSOR = {"_node": None, "_index": 0, "_view": None, "_leaf": None, "_grad": None}
_OF_STORAGE = {"version": 0, "category": 0, "saved": False, "shared": False}

# The function's own object is a tuple that begins with the address of a table. Its words: [0] how
# many storages are written, [1] the address of the addresses of their versions; [2] how many
# results there are, or -1 if the only one is given as it is, [3] the address of rows (what gives
# the array, the type, the bytes as a number and as an object); [4] what makes an object of a class,
# [5] tensors' class, [6] storages' class, [7] what makes a tensor in Python; the addresses of the
# ledger's words [8] live, [9] count, [10] peak and [11] observer; [12] None; how far from their
# beginning tensors have [13] array, [14] type and [15] storage, and storages [16] array, [17] type
# and [18] size; [19] and [20] how many words more a tensor has and the address of rows (distance,
# object), [21] and [22] the same of a storage.
TEXT = r"""
declare ptr @PyTuple_GetItem(ptr, i64)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare ptr @PyLong_AsVoidPtr(ptr)
declare i64 @PyLong_AsLongLong(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyObject_CallFunctionObjArgs(ptr, ...)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)

define internal i64 @entry(ptr %table, i64 %number) alwaysinline nounwind {
  %at = getelementptr i64, ptr %table, i64 %number
  %word = load i64, ptr %at
  ret i64 %word
}

define internal ptr @address(ptr %table, i64 %number) alwaysinline nounwind {
  %at = getelementptr ptr, ptr %table, i64 %number
  %word = load ptr, ptr %at
  ret ptr %word
}

; Puts an object into a word of a new one.
define internal void @put(ptr %object, i64 %distance, ptr %held) alwaysinline nounwind {
  %at = getelementptr i8, ptr %object, i64 %distance
  call void @Py_IncRef(ptr %held)
  store ptr %held, ptr %at
  ret void
}

; Puts all of some rows (distance, object) into a new object.
define internal void @fill(ptr %object, i64 %count, ptr %rows) nounwind {
entry:
  br label %next
next:
  %n = phi i64 [0, %entry], [%n1, %one]
  %more = icmp slt i64 %n, %count
  br i1 %more, label %one, label %end
one:
  %row = getelementptr [2 x i64], ptr %rows, i64 %n
  %n1 = add i64 %n, 1
  %distance = call i64 @entry(ptr %row, i64 0)
  %held = call ptr @address(ptr %row, i64 1)
  call void @put(ptr %object, i64 %distance, ptr %held)
  br label %next
end:
  ret void
}

; Adds to the number in a word; gives the sum.
define internal i64 @add(ptr %word, i64 %more) nounwind {
  %old = load ptr, ptr %word
  %was = call i64 @PyLong_AsLongLong(ptr %old)
  %sum = add i64 %was, %more
  %new = call ptr @PyLong_FromLongLong(i64 %sum)
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %end, label %exchange
exchange:
  store ptr %new, ptr %word
  call void @Py_DecRef(ptr %old)
  br label %end
end:
  ret i64 %sum
}

; Enters the bytes of a new storage in the ledger.
define internal void @account(ptr %table, i64 %bytes) nounwind {
  %live_word = call ptr @address(ptr %table, i64 8)
  %count_word = call ptr @address(ptr %table, i64 9)
  %peak_word = call ptr @address(ptr %table, i64 10)
  %live = call i64 @add(ptr %live_word, i64 %bytes)
  %count = call i64 @add(ptr %count_word, i64 1)
  %peak = load ptr, ptr %peak_word
  %most = call i64 @PyLong_AsLongLong(ptr %peak)
  %is_more = icmp sgt i64 %live, %most
  br i1 %is_more, label %rise, label %end
rise:
  %difference = sub i64 %live, %most
  %risen = call i64 @add(ptr %peak_word, i64 %difference)
  br label %end
end:
  ret void
}

; A new object of a class.
define internal ptr @make(ptr %table, i64 %number) nounwind {
  %maker = call ptr @address(ptr %table, i64 4)
  %class = call ptr @address(ptr %table, i64 %number)
  %made = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %maker, ptr %class, ptr null)
  ret ptr %made
}

; A tensor on an array, as Python makes it; takes over the array.
define internal ptr @wrap(ptr %table, ptr %row, ptr %array) nounwind {
entry:
  %type = call ptr @address(ptr %row, i64 1)
  %bytes = call i64 @entry(ptr %row, i64 2)
  %size = call ptr @address(ptr %row, i64 3)
  %observer_word = call ptr @address(ptr %table, i64 11)
  %observer = load ptr, ptr %observer_word
  %none = call ptr @address(ptr %table, i64 12)
  %unobserved = icmp eq ptr %observer, %none
  br i1 %unobserved, label %native, label %observed
observed:
  %fresh = call ptr @address(ptr %table, i64 7)
  %found = call ptr (ptr, ...)
      @PyObject_CallFunctionObjArgs(ptr %fresh, ptr %array, ptr %type, ptr null)
  br label %end
native:
  %tensor = call ptr @make(ptr %table, i64 5)
  %no_tensor = icmp eq ptr %tensor, null
  br i1 %no_tensor, label %end, label %with_storage
with_storage:
  %storage = call ptr @make(ptr %table, i64 6)
  %no_storage = icmp eq ptr %storage, null
  br i1 %no_storage, label %without, label %write
without:
  call void @Py_DecRef(ptr %tensor)
  br label %end
write:
  %array_in_storage = call i64 @entry(ptr %table, i64 16)
  %type_in_storage = call i64 @entry(ptr %table, i64 17)
  %size_in_storage = call i64 @entry(ptr %table, i64 18)
  %storage_count = call i64 @entry(ptr %table, i64 21)
  %storage_rows = call ptr @address(ptr %table, i64 22)
  call void @put(ptr %storage, i64 %array_in_storage, ptr %array)
  call void @put(ptr %storage, i64 %type_in_storage, ptr %type)
  call void @put(ptr %storage, i64 %size_in_storage, ptr %size)
  call void @fill(ptr %storage, i64 %storage_count, ptr %storage_rows)
  call void @account(ptr %table, i64 %bytes)
  %array_in_tensor = call i64 @entry(ptr %table, i64 13)
  %type_in_tensor = call i64 @entry(ptr %table, i64 14)
  %storage_in_tensor = call i64 @entry(ptr %table, i64 15)
  %tensor_count = call i64 @entry(ptr %table, i64 19)
  %tensor_rows = call ptr @address(ptr %table, i64 20)
  call void @put(ptr %tensor, i64 %array_in_tensor, ptr %array)
  call void @put(ptr %tensor, i64 %type_in_tensor, ptr %type)
  call void @put(ptr %tensor, i64 %storage_in_tensor, ptr %storage)
  call void @fill(ptr %tensor, i64 %tensor_count, ptr %tensor_rows)
  call void @Py_DecRef(ptr %storage)
  br label %end
end:
  %result = phi ptr [%found, %observed], [null, %native], [null, %without], [%tensor, %write]
  call void @Py_DecRef(ptr %array)
  ret ptr %result
}

define internal ptr @result(ptr %table, ptr %row) nounwind {
entry:
  %source = call ptr @address(ptr %row, i64 0)
  %array = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %source, ptr null)
  %failed = icmp eq ptr %array, null
  br i1 %failed, label %nothing, label %found
nothing:
  ret ptr null
found:
  %tensor = call ptr @wrap(ptr %table, ptr %row, ptr %array)
  ret ptr %tensor
}

define ptr @deliver(ptr %own, ptr %ignored) nounwind {
entry:
  %number = call ptr @PyTuple_GetItem(ptr %own, i64 0)
  %table = call ptr @PyLong_AsVoidPtr(ptr %number)
  %written_count = call i64 @entry(ptr %table, i64 0)
  %written = call ptr @address(ptr %table, i64 1)
  %count = call i64 @entry(ptr %table, i64 2)
  %rows = call ptr @address(ptr %table, i64 3)
  br label %next_written
next_written:
  %w = phi i64 [0, %entry], [%w1, %one_written]
  %more_written = icmp slt i64 %w, %written_count
  br i1 %more_written, label %one_written, label %results
one_written:
  %version = call ptr @address(ptr %written, i64 %w)
  %w1 = add i64 %w, 1
  %counted = call i64 @add(ptr %version, i64 1)
  br label %next_written
results:
  %is_one = icmp slt i64 %count, 0
  br i1 %is_one, label %one, label %several
one:
  %only = call ptr @result(ptr %table, ptr %rows)
  ret ptr %only
several:
  %tuple = call ptr @PyTuple_New(i64 %count)
  %no_tuple = icmp eq ptr %tuple, null
  br i1 %no_tuple, label %end, label %next
next:
  %n = phi i64 [0, %several], [%n1, %keep]
  %more = icmp slt i64 %n, %count
  br i1 %more, label %make, label %end
make:
  %row = getelementptr [4 x i64], ptr %rows, i64 %n
  %item = call ptr @result(ptr %table, ptr %row)
  %n1 = add i64 %n, 1
  %no_item = icmp eq ptr %item, null
  br i1 %no_item, label %failed, label %keep
keep:
  %set = call i32 @PyTuple_SetItem(ptr %tuple, i64 %n, ptr %item)
  br label %next
failed:
  call void @Py_DecRef(ptr %tuple)
  ret ptr null
end:
  ret ptr %tuple
}
"""


@cache
def _address() -> int:
    return llvm.addresses_in(TEXT, ("deliver",))["deliver"]


def delivering(
    written: Iterable[Storage], sources: Sequence[Source], as_tuple: bool
) -> Callable[[], Any]:
    """A function that counts a write to each of some storages and gives results as tensors: the
    only one, or a tuple."""
    written = list(written)
    to_version = slot_of(Storage, "version")
    versions = table([id(storage) + to_version for storage in written])
    sizes = [type.nbytes for _, type in sources]
    rows = table([
        (id(take), id(type), size, id(size))
        for (take, type), size in zip(sources, sizes, strict=True)
    ])  # fmt: skip
    of_tensor = table([(slot_of(Tensor, n), id(held)) for n, held in _OF_TENSOR.items()])
    of_storage = table([(slot_of(Storage, n), id(held)) for n, held in _OF_STORAGE.items()])
    head = table([
        len(written), address_of(versions), len(sources) if as_tuple else -1, address_of(rows),
        id(object.__new__), id(Tensor), id(Storage), id(fresh),
        *(id(LEDGER) + slot_of(Ledger, n) for n in ("live", "count", "peak", "observer")),
        id(None),
        *(slot_of(Tensor, n) for n in ("_value", "_type", "_storage")),
        *(slot_of(Storage, n) for n in ("value", "type", "nbytes")),
        len(_OF_TENSOR), address_of(of_tensor), len(_OF_STORAGE), address_of(of_storage),
    ])  # fmt: skip
    kept = (head, written, versions, list(sources), sizes, rows, of_tensor, of_storage)
    own = (address_of(head), *kept)
    return builtin("deliver", _address(), own)  # type: ignore[no-any-return]
