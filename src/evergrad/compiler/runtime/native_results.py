"""What is left after a run, natively: the outside is up to date, and the results are tensors.

Small results are copied out of the program's memory, to arrays of which two sets are kept: one of
them is free where the result of each call takes the place of the one before. Where none is
(results are collected, or somebody looks at their memory), or allocations are observed, Python
makes the results, and their arrays become a set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from evergrad.compiler.frontend.outputs import Form
from evergrad.compiler.frontend.variant import Variant
from evergrad.compiler.native.builtin import type_slot
from evergrad.compiler.native.object_words import reference_count, slot_of, table
from evergrad.compiler.runtime.native_storages import storages
from evergrad.compiler.schedule.instructions import address_of
from evergrad.core.storage import Storage
from evergrad.core.tensor import Tensor

if TYPE_CHECKING:
    from evergrad.compiler.runtime.program import Program

_SETS = 2

# Words of a delivery: [0] how many pieces of memory are copied, [1] the address of their rows,
# [2] how many storages were written, [3] the address of where their versions lie, [4] how many
# results there are, [5] the address of their rows (where they lie, bytes, these as an object,
# type), [6] the address of the sets, of each result a row (array or null, elements), [7] whether
# the results are in a tuple, [8] the table of storages, [9] the class of tensors, [10] what makes
# them, [11] how far from their beginning objects have their reference count, and tensors
# [12] value, [13] type, [14] storage, [15] number, [16] and following what is None.
_NONE_FROM = 16
_NONE = ("_node", "_view", "_leaf", "_grad")
# Copies pieces of memory, of each a row (from, to, bytes, distance), to places so many distances
# further than they tell.
COPY_TEXT = r"""
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal void @copy_pieces(i64 %count, ptr %pieces, i64 %far) alwaysinline nounwind {
entry:
  br label %next
next:
  %n = phi i64 [0, %entry], [%n1, %piece]
  %more = icmp slt i64 %n, %count
  br i1 %more, label %piece, label %end
piece:
  %this = getelementptr [4 x i64], ptr %pieces, i64 %n
  %n1 = add i64 %n, 1
  %from = call ptr @address(ptr %this, i64 0)
  %to = call ptr @address(ptr %this, i64 1)
  %bytes = call i64 @entry(ptr %this, i64 2)
  %distance = call i64 @entry(ptr %this, i64 3)
  %after = mul i64 %distance, %far
  %target = getelementptr i8, ptr %to, i64 %after
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %from, i64 %bytes, i1 false)
  br label %next
end:
  ret void
}
"""
TEXT = (
    COPY_TEXT
    + r"""
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)

; Whether an array is there that nobody has but the set.
define internal i1 @is_free(ptr %table, ptr %row) nounwind {
entry:
  %array = call ptr @address(ptr %row, i64 0)
  %none = icmp eq ptr %array, null
  br i1 %none, label %no, label %look
look:
  %distance = call i64 @entry(ptr %table, i64 11)
  %at = getelementptr i8, ptr %array, i64 %distance
  %count = load i32, ptr %at
  %single = icmp eq i32 %count, 1
  ret i1 %single
no:
  ret i1 false
}

; A set of which all arrays are free; null if there is none.
define internal ptr @free_set(ptr %table) nounwind {
entry:
  %count = call i64 @entry(ptr %table, i64 4)
  %sets = call ptr @address(ptr %table, i64 6)
  %storages = call ptr @address(ptr %table, i64 8)
  %observerp = call ptr @address(ptr %storages, i64 3)
  %none = call ptr @address(ptr %storages, i64 4)
  %observer = load ptr, ptr %observerp
  %unobserved = icmp eq ptr %observer, %none
  br i1 %unobserved, label %next_set, label %no
next_set:
  %s = phi i64 [0, %entry], [%s1, %end_of_set]
  %s1 = add i64 %s, 1
  %is_set = icmp slt i64 %s, SETS
  br i1 %is_set, label %set, label %no
set:
  %first = mul i64 %s, %count
  %rows = getelementptr [2 x i64], ptr %sets, i64 %first
  br label %in_set
in_set:
  %n = phi i64 [0, %set], [%n1, %row]
  %is_free_so_far = phi i1 [true, %set], [%free, %row]
  %more = icmp slt i64 %n, %count
  %go_on = and i1 %more, %is_free_so_far
  br i1 %go_on, label %row, label %end_of_set
row:
  %here = getelementptr [2 x i64], ptr %rows, i64 %n
  %n1 = add i64 %n, 1
  %free = call i1 @is_free(ptr %table, ptr %here)
  br label %in_set
end_of_set:
  br i1 %is_free_so_far, label %yes, label %next_set
yes:
  ret ptr %rows
no:
  ret ptr null
}

; Brings the outside up to date.
define internal void @finish(ptr %table) nounwind {
entry:
  %piece_count = call i64 @entry(ptr %table, i64 0)
  %pieces = call ptr @address(ptr %table, i64 1)
  %written_count = call i64 @entry(ptr %table, i64 2)
  %written = call ptr @address(ptr %table, i64 3)
  call void @copy_pieces(i64 %piece_count, ptr %pieces, i64 0)
  br label %next_written
next_written:
  %w = phi i64 [0, %entry], [%w1, %count]
  %last_old = phi ptr [null, %entry], [%old, %count]
  %last_new = phi ptr [null, %entry], [%new, %count]
  %more_written = icmp slt i64 %w, %written_count
  br i1 %more_written, label %version, label %end
version:
  %place = call ptr @address(ptr %written, i64 %w)
  %w1 = add i64 %w, 1
  %old = load ptr, ptr %place
  %same = icmp eq ptr %old, %last_old
  br i1 %same, label %again, label %make
again:
  call void @Py_IncRef(ptr %last_new)
  br label %count
make:
  %before = call i64 @PyLong_AsLongLong(ptr %old)
  %after = add i64 %before, 1
  %made = call ptr @PyLong_FromLongLong(i64 %after)
  br label %count
count:
  %new = phi ptr [%last_new, %again], [%made, %make]
  store ptr %new, ptr %place
  call void @Py_DecRef(ptr %old)
  br label %next_written
end:
  ret void
}

; Copies the results to the arrays of a set, which are taken with that.
define internal void @copy_out(ptr %table, ptr %rows) nounwind {
entry:
  %count = call i64 @entry(ptr %table, i64 4)
  %results = call ptr @address(ptr %table, i64 5)
  br label %next
next:
  %n = phi i64 [0, %entry], [%n1, %copy]
  %more = icmp slt i64 %n, %count
  br i1 %more, label %copy, label %end
copy:
  %result = getelementptr [4 x i64], ptr %results, i64 %n
  %row = getelementptr [2 x i64], ptr %rows, i64 %n
  %n1 = add i64 %n, 1
  %from = call ptr @address(ptr %result, i64 0)
  %bytes = call i64 @entry(ptr %result, i64 1)
  %array = call ptr @address(ptr %row, i64 0)
  %elements = call ptr @address(ptr %row, i64 1)
  call void @llvm.memcpy.p0.p0.i64(ptr %elements, ptr %from, i64 %bytes, i1 false)
  call void @Py_IncRef(ptr %array)
  br label %next
end:
  ret void
}

; A tensor on an array that was taken; null, with an error, if there is no memory.
define internal ptr @tensor_of(ptr %table, ptr %result, ptr %row) nounwind {
entry:
  %array = call ptr @address(ptr %row, i64 0)
  %bytes = call i64 @entry(ptr %result, i64 1)
  %size = call ptr @address(ptr %result, i64 2)
  %type = call ptr @address(ptr %result, i64 3)
  %storages = call ptr @address(ptr %table, i64 8)
  %none = call ptr @address(ptr %storages, i64 4)
  %zero = call ptr @address(ptr %storages, i64 5)
  %nothing = call ptr @address(ptr %storages, i64 9)
  %class = call ptr @address(ptr %table, i64 9)
  %new = call ptr @address(ptr %table, i64 10)
  %to_storage = call i64 @entry(ptr %table, i64 14)
  %tensor = call ptr %new(ptr %class, ptr %nothing, ptr null)
  %failed = icmp eq ptr %tensor, null
  br i1 %failed, label %end, label %fill
fill:
  %storage = call ptr
      @storage_of(ptr %storages, ptr %array, ptr %type, ptr %size, i64 %bytes)
  %no_storage = icmp eq ptr %storage, null
  br i1 %no_storage, label %drop, label %put
drop:
  call void @Py_DecRef(ptr %tensor)
  br label %end
put:
  %at = getelementptr i8, ptr %tensor, i64 %to_storage
  store ptr %storage, ptr %at
  call void @hold(ptr %tensor, ptr %table, i64 12, ptr %array)
  call void @hold(ptr %tensor, ptr %table, i64 13, ptr %type)
  call void @hold(ptr %tensor, ptr %table, i64 15, ptr %zero)
"""
    + "".join(
        f"  call void @hold(ptr %tensor, ptr %table, i64 {_NONE_FROM + n}, ptr %none)\n"
        for n in range(len(_NONE))
    )
    + r"""  br label %end
end:
  %made = phi ptr [null, %entry], [null, %drop], [%tensor, %put]
  call void @Py_DecRef(ptr %array)
  ret ptr %made
}

; The results on the arrays of a set, which are taken; null, with an error, if there is no memory.
define internal ptr @hand_out(ptr %table, ptr %rows) nounwind {
entry:
  %count = call i64 @entry(ptr %table, i64 4)
  %results = call ptr @address(ptr %table, i64 5)
  %is_tuple = call i64 @entry(ptr %table, i64 7)
  %in_tuple = icmp ne i64 %is_tuple, 0
  br i1 %in_tuple, label %many, label %one
one:
  %single = call ptr @tensor_of(ptr %table, ptr %results, ptr %rows)
  ret ptr %single
many:
  %tuple = call ptr @PyTuple_New(i64 %count)
  br label %next
next:
  %n = phi i64 [0, %many], [%n1, %put], [%n1, %make]
  %whole = phi ptr [%tuple, %many], [%whole, %put], [null, %make]
  %more = icmp slt i64 %n, %count
  br i1 %more, label %make, label %end
make:
  %result = getelementptr [4 x i64], ptr %results, i64 %n
  %row = getelementptr [2 x i64], ptr %rows, i64 %n
  %n1 = add i64 %n, 1
  %tensor = call ptr @tensor_of(ptr %table, ptr %result, ptr %row)
  %no_tensor = icmp eq ptr %tensor, null
  %no_tuple = icmp eq ptr %whole, null
  %failed = or i1 %no_tensor, %no_tuple
  br i1 %failed, label %next, label %put
put:
  %ignored = call i32 @PyTuple_SetItem(ptr %whole, i64 %n, ptr %tensor)
  br label %next
end:
  ret ptr %whole
}
"""
).replace("SETS", str(_SETS))


class Delivery:
    """The table of a delivery, and what makes new results where no set is free."""

    def __init__(self, variant: Variant, hand_out: Callable[[], list[Tensor]]) -> None:
        self.hand_out = hand_out
        self.put_together = variant.captured.results.put_together
        program, captured = variant.program, variant.captured
        boxes = dict(program.boxed)
        outputs = captured.graph.outputs[: captured.result_count]
        found = [boxes[n] for n in range(captured.result_count)]
        copies = late_copies(program)
        self.pieces = table([(address_of(a), address_of(b), b.nbytes, 0) for a, b in copies])
        version = slot_of(Storage, "version")
        self.versions = table([id(storage) + version for storage in program.recipe.written])
        sizes = [box.nbytes for box in found]
        self.results = table([
            (address_of(box), size, id(size), id(output.type))
            for box, size, output in zip(found, sizes, outputs, strict=True)
        ])  # fmt: skip
        # The arrays of the sets, which one is made anew next, and where native code finds them.
        self.kept: list[list[Any]] = [[] for _ in range(_SETS)]
        self.turn = 0
        self.sets = table([0] * max(1, _SETS * len(found) * 2))
        self.rows = self.sets[: _SETS * len(found) * 2].reshape(_SETS, len(found), 2)
        self.alive = (copies, found, sizes, outputs, program.recipe.written)
        self.table = table([
            len(copies), address_of(self.pieces), len(self.versions), address_of(self.versions),
            len(found), address_of(self.results), address_of(self.sets),
            captured.results.form is Form.TUPLE, storages(), *_words_of_tensors(),
        ])  # fmt: skip

    def deliver(self) -> Any:
        """The results of a run as new tensors, whose arrays become a set."""
        made = self.hand_out()
        turn = self.turn
        self.rows[turn] = 0  # until the arrays are kept
        self.kept[turn] = [tensor._value for tensor in made]
        self.rows[turn] = [(id(array), address_of(array)) for array in self.kept[turn]]
        self.turn = (turn + 1) % _SETS
        return self.put_together(made, ())


def delivery_of(variant: Variant, hand_out: Callable[[], list[Tensor]]) -> Delivery | None:
    """What delivers the results of a variant that has a shortest way, natively; ``None`` if there
    is more to do. ``hand_out`` makes tensors of them."""
    program, captured = variant.program, variant.captured
    if captured.grads or reference_count() is None or not is_copied_whole(program):
        return None
    return Delivery(variant, hand_out)


def late_copies(program: Program) -> list[tuple[Any, Any]]:
    """What is copied to the outside after a run, from which array to which."""
    return [(program.array(place), storage.value) for place, storage in program.recipe.copies]


def is_copied_whole(program: Program) -> bool:
    """Whether what is copied after a run, and where it goes, lies in order."""
    arrays = [box for _, box in program.boxed]
    arrays += [array for pair in late_copies(program) for array in pair]
    return all(array.flags.c_contiguous for array in arrays)


@cache
def _words_of_tensors() -> Sequence[int]:
    """The words of a delivery that tell how tensors are made."""
    slots = [slot_of(Tensor, n) for n in ("_value", "_type", "_storage", "_index", *_NONE)]
    counted = reference_count()
    assert counted is not None, "only asked for where there is a number"
    return [id(Tensor), type_slot(Tensor, "new"), counted, *slots]
