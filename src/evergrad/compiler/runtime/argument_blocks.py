"""What every call does with its arguments, natively: see that they are like those of the call
before, and tell the kernels where they lie.

Tensors are looked at by their words (:mod:`.native.object_words`), which costs some nanoseconds for
each and leaves all other memory of Python alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np

from evergrad.compiler.frontend.native_predicates import answer
from evergrad.compiler.native import jit
from evergrad.compiler.native.object_words import (
    TABLE_TEXT,
    WORD_TEXT,
    array_flags,
    array_start,
    kind_word,
    slot_of,
    table,
)
from evergrad.compiler.schedule.instructions import address_of
from evergrad.core.storage import Storage
from evergrad.core.tensor import Tensor, View

Answer = Callable[[tuple[Any, ...]], bool]
# Where kernels find the address of a buffer: a block of words, which of them, and what is added.
Patch = tuple[Any, int, int]

# Words of the table of the first function: [0] how many arguments there are, [1] the address of
# their classes and types, [2] how many storages are written, [3] the address of theirs, [4] None;
# then how far from their beginning objects have [5] their class, tensors [6] type, [7] node,
# [8] view, [9] storage, views [10] their base and [11] the version they have seen, storages [12]
# their version.
#
# Words of the second: [0] how many arguments kernels read, [1] the address of rows (which argument,
# how many words of kernels, the address of these with what is added), [2] the class of arrays;
# then how far from their beginning [3] objects have their class, [4] tensors their array, and
# arrays [5] their elements' address and [6] their flags.
TEXT = (
    TABLE_TEXT
    + WORD_TEXT
    + r"""
declare ptr @PyTuple_GetItem(ptr, i64)
declare i64 @PyTuple_Size(ptr)
declare i64 @PyLong_AsLongLong(ptr)

; Whether a view is up to date: it has no base, or has seen the version of its storage.
define internal i1 @is_recent(ptr %table, ptr %view, ptr %storage) nounwind {
  %none = call ptr @address(ptr %table, i64 4)
  %to_base = call i64 @entry(ptr %table, i64 10)
  %to_seen = call i64 @entry(ptr %table, i64 11)
  %to_version = call i64 @entry(ptr %table, i64 12)
  %base = call ptr @word(ptr %view, i64 %to_base)
  %no_base = icmp eq ptr %base, %none
  br i1 %no_base, label %yes, label %compare
compare:
  %seen = call ptr @word(ptr %view, i64 %to_seen)
  %version = call ptr @word(ptr %storage, i64 %to_version)
  %then = call i64 @PyLong_AsLongLong(ptr %seen)
  %now = call i64 @PyLong_AsLongLong(ptr %version)
  %same = icmp eq i64 %then, %now
  ret i1 %same
yes:
  ret i1 true
}

define i64 @fit(ptr %table, ptr %args) nounwind {
entry:
  %count = call i64 @entry(ptr %table, i64 0)
  %kinds = call ptr @address(ptr %table, i64 1)
  %written_count = call i64 @entry(ptr %table, i64 2)
  %written = call ptr @address(ptr %table, i64 3)
  %none = call ptr @address(ptr %table, i64 4)
  %to_class = call i64 @entry(ptr %table, i64 5)
  %to_type = call i64 @entry(ptr %table, i64 6)
  %to_node = call i64 @entry(ptr %table, i64 7)
  %to_view = call i64 @entry(ptr %table, i64 8)
  %to_storage = call i64 @entry(ptr %table, i64 9)
  %size = call i64 @PyTuple_Size(ptr %args)
  %as_many = icmp eq i64 %size, %count
  br i1 %as_many, label %next, label %end
next:
  %n = phi i64 [0, %entry], [%n1, %in_written]
  %more = icmp slt i64 %n, %count
  br i1 %more, label %look, label %end
look:
  %arg = call ptr @PyTuple_GetItem(ptr %args, i64 %n)
  %n1 = add i64 %n, 1
  %classp = getelementptr [2 x ptr], ptr %kinds, i64 %n, i64 0
  %class = load ptr, ptr %classp
  %its_class = call ptr @word(ptr %arg, i64 %to_class)
  %same_class = icmp eq ptr %its_class, %class
  br i1 %same_class, label %look_closer, label %end
look_closer:
  %typep = getelementptr [2 x ptr], ptr %kinds, i64 %n, i64 1
  %type = load ptr, ptr %typep
  %its_type = call ptr @word(ptr %arg, i64 %to_type)
  %node = call ptr @word(ptr %arg, i64 %to_node)
  %view = call ptr @word(ptr %arg, i64 %to_view)
  %storage = call ptr @word(ptr %arg, i64 %to_storage)
  %same_type = icmp eq ptr %its_type, %type
  %no_node = icmp eq ptr %node, %none
  %fits = and i1 %no_node, %same_type
  br i1 %fits, label %look_at_view, label %end
look_at_view:
  %no_view = icmp eq ptr %view, %none
  br i1 %no_view, label %in_written, label %is_view
is_view:
  %recent = call i1 @is_recent(ptr %table, ptr %view, ptr %storage)
  br i1 %recent, label %in_written, label %end
in_written:
  %w = phi i64 [0, %look_at_view], [0, %is_view], [%w1, %compare]
  %more_written = icmp slt i64 %w, %written_count
  br i1 %more_written, label %compare, label %next
compare:
  %otherp = getelementptr ptr, ptr %written, i64 %w
  %other = load ptr, ptr %otherp
  %w1 = add i64 %w, 1
  %is_written = icmp eq ptr %storage, %other
  br i1 %is_written, label %end, label %in_written
end:
  %yes = phi i64 [0, %entry], [1, %next], [0, %look], [0, %look_closer], [0, %is_view],
                 [0, %compare]
  ret i64 %yes
}

define i64 @tell(ptr %table, ptr %args) nounwind {
entry:
  %count = call i64 @entry(ptr %table, i64 0)
  %rows = call ptr @address(ptr %table, i64 1)
  %array_class = call ptr @address(ptr %table, i64 2)
  %to_class = call i64 @entry(ptr %table, i64 3)
  %to_array = call i64 @entry(ptr %table, i64 4)
  %to_start = call i64 @entry(ptr %table, i64 5)
  %to_flags = call i64 @entry(ptr %table, i64 6)
  br label %next
next:
  %n = phi i64 [0, %entry], [%n1, %in_words]
  %more = icmp slt i64 %n, %count
  br i1 %more, label %look, label %end
look:
  %row = getelementptr [3 x i64], ptr %rows, i64 %n
  %n1 = add i64 %n, 1
  %which = call i64 @entry(ptr %row, i64 0)
  %word_count = call i64 @entry(ptr %row, i64 1)
  %words = call ptr @address(ptr %row, i64 2)
  %arg = call ptr @PyTuple_GetItem(ptr %args, i64 %which)
  %array = call ptr @word(ptr %arg, i64 %to_array)
  %class = call ptr @word(ptr %array, i64 %to_class)
  %is_array = icmp eq ptr %class, %array_class
  br i1 %is_array, label %look_closer, label %end
look_closer:
  %flagsp = getelementptr i8, ptr %array, i64 %to_flags
  %flags = load i32, ptr %flagsp
  %in_order = trunc i32 %flags to i1
  %start = call ptr @word(ptr %array, i64 %to_start)
  br i1 %in_order, label %in_words, label %end
in_words:
  %w = phi i64 [0, %look_closer], [%w1, %write]
  %more_words = icmp slt i64 %w, %word_count
  br i1 %more_words, label %write, label %next
write:
  %pair = getelementptr [2 x i64], ptr %words, i64 %w
  %w1 = add i64 %w, 1
  %word = call ptr @address(ptr %pair, i64 0)
  %added = call i64 @entry(ptr %pair, i64 1)
  %place = getelementptr i8, ptr %start, i64 %added
  store ptr %place, ptr %word
  br label %in_words
end:
  %yes = phi i64 [1, %next], [0, %look], [0, %look_closer]
  ret i64 %yes
}
"""
)


@cache
def _addresses() -> dict[str, int]:
    return jit.addresses_in(TEXT, ("fit", "tell"))


def fitting(args: Sequence[Tensor], written: Collection[Any]) -> Answer:
    """A function that tells whether arguments are surely like these: as many tensors of the same
    classes and types that ask for no gradient, on none of the storages that are written."""
    kinds = table([(id(type(a)), id(a._type)) for a in args])
    storages = table([id(storage) for storage in written])
    slots = [
        *(slot_of(Tensor, name) for name in ("_type", "_node", "_view", "_storage")),
        slot_of(View, "base"), slot_of(View, "seen"), slot_of(Storage, "version"),
    ]  # fmt: skip
    head = table([
        len(args), address_of(kinds), len(storages), address_of(storages), id(None), kind_word(),
        *slots,
    ])  # fmt: skip
    kept = (head, kinds, storages, [(type(a), a._type) for a in args], list(written))
    return _function("fit", head, kept)


def telling(given: Iterable[tuple[int, int]], patches: dict[int, list[Patch]]) -> Answer:
    """A function that tells kernels where the elements of arguments lie, and says whether that was
    possible: whether all of them lie in order. ``given`` are the buffers' numbers with those of
    their arguments, ``patches`` where kernels find their addresses."""
    found = [(owner, patches[number]) for number, owner in given if number in patches]
    words = [
        table([(address_of(block.obj) + 8 * slot, offset) for block, slot, offset in places])
        for _, places in found
    ]
    rows = table([(n, len(p), address_of(w)) for (n, p), w in zip(found, words, strict=True)])
    head = table([
        len(found), address_of(rows), id(np.ndarray), kind_word(), slot_of(Tensor, "_value"),
        array_start(), array_flags(),
    ])  # fmt: skip
    kept = (head, rows, words, [block for _, places in found for block, *_ in places])
    return _function("tell", head, kept)


def _function(name: str, head: np.ndarray[Any, Any], kept: tuple[Any, ...]) -> Answer:
    code = _addresses()[name]
    return answer(name, code, address_of(head), kept, takes_one=True)  # type: ignore[no-any-return]
