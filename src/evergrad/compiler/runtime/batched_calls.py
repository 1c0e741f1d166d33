"""Many calls of a step in one: a native loop over the rows of its arguments.

A call costs microseconds of Python, during which no other thread can be in Python, and a small step
takes no longer itself. In a loop only the first rows are calls, until there is a program that
serves the others; these are run natively, one after the other, without the GIL. Python is asked now
and then, so that an interrupt is heard.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from evergrad.compiler.api import Compiled, signature
from evergrad.compiler.frontend.outputs import Form
from evergrad.compiler.frontend.variant import Call, Variant
from evergrad.compiler.native import jit
from evergrad.compiler.runtime.call_path import is_plain
from evergrad.compiler.runtime.program import Program
from evergrad.compiler.runtime.thread_pool import Run
from evergrad.compiler.runtime.thread_pool_code import BRIEF, LONG, SHORT, native
from evergrad.compiler.schedule.buffers import address_of
from evergrad.core.shapes import tensor_type
from evergrad.core.state import STATE
from evergrad.core.tensor import Tensor, fresh
from evergrad.core.tree import tree_flatten, tree_unflatten
from evergrad.memory import pool
from evergrad.memory.cache_lines import isolated_copy
from evergrad.ops.rows.movement.joining import stack

# So long, in seconds, the loop goes on without Python; and so many rows of programs of each length
# it does at once in the beginning.
_TURN = 0.01
_ROWS = {LONG: 1, SHORT: 128, BRIEF: 1024}

# Words of a loop: [0] what runs, [1] the team or null, [2] the run, [3] the rows done so far,
# [4] how many words of kernels change from row to row, [5] the address of their rows (word, start,
# distance), [6] how many pieces of memory are copied after each run, [7] the address of their rows
# (from, to, bytes, distance). ``loop`` goes on until so many rows are done, or one has failed.
_TEXT = r"""
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

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

; Copies pieces of memory after the run of a row.
define internal void @copy_pieces(i64 %count, ptr %pieces, i64 %row) alwaysinline nounwind {
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
  %after = mul i64 %distance, %row
  %target = getelementptr i8, ptr %to, i64 %after
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %from, i64 %bytes, i1 false)
  br label %next
end:
  ret void
}

define void @loop(ptr %words, i64 %end) nounwind {
entry:
  %runs = call ptr @address(ptr %words, i64 0)
  %team = call ptr @address(ptr %words, i64 1)
  %run = call ptr @address(ptr %words, i64 2)
  %donep = getelementptr i64, ptr %words, i64 3
  %place_count = call i64 @entry(ptr %words, i64 4)
  %places = call ptr @address(ptr %words, i64 5)
  %piece_count = call i64 @entry(ptr %words, i64 6)
  %pieces = call ptr @address(ptr %words, i64 7)
  br label %next
next:
  %row = load i64, ptr %donep
  %more = icmp slt i64 %row, %end
  br i1 %more, label %tell, label %stop
tell:
  %p = phi i64 [0, %next], [%p1, %write]
  %more_places = icmp slt i64 %p, %place_count
  br i1 %more_places, label %write, label %go
write:
  %place = getelementptr [3 x i64], ptr %places, i64 %p
  %p1 = add i64 %p, 1
  %word = call ptr @address(ptr %place, i64 0)
  %start = call ptr @address(ptr %place, i64 1)
  %distance = call i64 @entry(ptr %place, i64 2)
  %far = mul i64 %distance, %row
  %told = getelementptr i8, ptr %start, i64 %far
  store ptr %told, ptr %word
  br label %tell
go:
  %failed = call i64 %runs(ptr %team, ptr %run)
  %fine = icmp eq i64 %failed, 0
  br i1 %fine, label %copy, label %stop
copy:
  call void @copy_pieces(i64 %piece_count, ptr %pieces, i64 %row)
  %row1 = add i64 %row, 1
  store i64 %row1, ptr %donep
  br label %next
stop:
  ret void
}
"""


@cache
def _loop() -> Callable[[int, int], None]:
    address = jit.addresses_in(_TEXT, ("loop",))["loop"]
    return jit.function_of(address, ctypes.c_void_p, ctypes.c_int64)  # type: ignore[no-any-return]


def loop_of(step: Compiled, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the step gives for each row of the tensors among its arguments, in this order, stacked;
    whatever else is among them is given to every call."""
    leaves, spec = tree_flatten((args, kwargs))
    count = _rows_of([leaf for leaf in leaves if isinstance(leaf, Tensor)])
    is_traced = STATE.get().trace is not None  # part of a larger program
    found: list[Any] = []
    while len(found) < count:
        row = [leaf[len(found)] if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        with step.lock:
            variant = None if is_traced else step.holding(signature(row, spec))
            if variant is not None and _can_loop(variant, row):
                return _Loop(variant, leaves, count, found).results()
        its_args, its_kwargs = tree_unflatten(row, spec)
        try:
            found.append(step(*its_args, **its_kwargs))
        except Exception as error:
            _note(error, len(found))
            raise
    return _stacked(found)


def _note(error: Exception, row: int) -> None:
    """Let an error tell where it happened."""
    error.add_note(f"in row {row} of a loop; the rows before it are done")


def _rows_of(tensors: Sequence[Tensor]) -> int:
    """How many rows the tensors have."""
    if not tensors or not all(t.ndim for t in tensors):
        raise ValueError(
            "loop() goes through the rows (the first dimension) of the tensors it is given.\n"
            "  fix: give at least one tensor, and expand() what is the same for all rows."
        )
    counts = [t._type.shape[0] for t in tensors]
    if len(set(counts)) > 1 or not counts[0]:
        raise ValueError(
            f"loop() needs the same number of rows, one at least, in all tensors; got {counts}"
        )
    return counts[0]


def _stacked(found: Sequence[Any]) -> Any:
    """Results of calls, one after the other, as one."""
    rows = [tree_flatten(result) for result in found]
    leaves, spec = rows[0]
    if not all(isinstance(leaf, Tensor) for leaf in leaves):
        raise TypeError(
            f"loop() stacks tensors, but the step gave {found[0]!r}.\n"
            "  fix: let the step give tensors only; numbers can be taken from them afterwards."
        )
    return tree_unflatten(
        [stack(column) for column in zip(*(r for r, _ in rows), strict=True)], spec
    )


def _can_loop(variant: Variant, row: Sequence[Any]) -> bool:
    """Whether the calls of a variant are nothing but native runs with results of the usual form."""
    tensors = [leaf for leaf in row if isinstance(leaf, Tensor)]
    program, captured = variant.program, variant.captured
    if not is_plain(variant) or captured.results.form is Form.OTHER or not program.bound:
        return False
    if variant.is_entangled(tensors) or any(t._grad is not g for t, g in captured.grads):
        return False
    if not program.is_one_run or program.copied or not _is_copied_whole(program):
        return False
    # What a run that fails has drawn would be lost.
    return not (program.is_random and program.can_fail)


class _Loop:
    """The rows of a loop that a variant's program serves, after those that calls have served."""

    def __init__(
        self, variant: Variant, leaves: Sequence[Any], count: int, found: Sequence[Any]
    ) -> None:
        self.variant = variant
        self.program = variant.program
        self.count = count
        self.first = len(found)
        self.tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        self.arguments = [_with_rows_in_order(tensor._value) for tensor in self.tensors]
        outputs = variant.captured.graph.outputs[: variant.captured.result_count]
        self.types = [tensor_type((count, *o.type.shape), o.type.dtype) for o in outputs]
        self.stacks = [pool.empty(type.shape, type.dtype.np) for type in self.types]
        for row, result in enumerate(found):
            for rows, tensor in zip(self.stacks, tree_flatten(result)[0], strict=True):
                rows[row] = tensor._value

    def results(self) -> Any:
        variant, program = self.variant, self.program
        variant.forget_numbers()
        variant.give_numbers()
        program.forget_arguments()
        (segment,) = program.segments
        places, pieces = _table(self.places()), _table(self.pieces())
        words = _table([
            native()["team_run"], 0, segment.address, self.first, len(places) // 3,
            address_of(places), len(pieces) // 4, address_of(pieces),
        ])  # fmt: skip
        program.streams.take()
        helpers = segment.take_helpers(program.threads)
        try:
            if helpers is not None:
                words[1] = helpers.address
            self.run(segment, words)
        finally:
            if helpers is not None:
                helpers.lock.release()
            program.streams.give_back()
            for storage in program.executable.written:
                storage.version += int(words[3]) - self.first
        made = [fresh(rows, type) for rows, type in zip(self.stacks, self.types, strict=True)]
        return variant.captured.results.put_together(made, self.tensors)

    def run(self, segment: Run, words: Any) -> None:
        """Run row after row, in turns so short that an interrupt need not wait."""
        loop, address, at_once = _loop(), address_of(words), _ROWS[segment.length]
        while (done := int(words[3])) < self.count:
            began = time.perf_counter()
            loop(address, min(done + at_once, self.count))
            if segment.status_word[0]:
                raise self.failure(int(words[3]))
            if time.perf_counter() - began < _TURN:
                at_once *= 2

    def failure(self, row: int) -> IndexError:
        error = Call(self.variant, [tensor[row] for tensor in self.tensors]).failed_lookup()
        _note(error, row)
        return error

    def places(self) -> list[tuple[int, int, int]]:
        """The words of kernels that change from row to row, where they begin, and how they go on:
        arguments, and results that kernels write to where they stay."""
        program = self.program
        rows = [(number, self.arguments[owner]) for number, owner in program.given]
        rows += [(place.buffer.number, self.stacks[n]) for n, place in program.computed]
        return [
            (address_of(block.obj) + 8 * slot, address_of(array) + offset, array.strides[0])
            for number, array in rows
            for block, slot, offset in program.patches.get(number, ())
        ]

    def pieces(self) -> list[tuple[int, int, int, int]]:
        """What is copied after each run: small results to their rows, and what is written to the
        outside last."""
        program = self.program
        copies = [(box, self.stacks[n], self.stacks[n].strides[0]) for n, box in program.boxed]
        copies += [(source, target, 0) for source, target in _late_copies(program)]
        return [
            (address_of(source), address_of(target), source.nbytes, distance)
            for source, target, distance in copies
        ]


def _late_copies(program: Program) -> list[tuple[Any, Any]]:
    """What is copied to the outside after a run, from which array to which."""
    return [(program.array(place), storage.value) for place, storage in program.executable.copies]


def _is_copied_whole(program: Program) -> bool:
    """Whether what is copied after a run, and where it goes, is contiguous."""
    arrays = [box for _, box in program.boxed]
    arrays += [array for pair in _late_copies(program) for array in pair]
    return all(array.flags.c_contiguous for array in arrays)


def _table(rows: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Numbers and addresses for native code to read, row by row."""
    return isolated_copy(rows, np.int64).reshape(-1)


def _with_rows_in_order(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array, or a copy, whose rows lie in order each."""
    return array if array[0].flags.c_contiguous else pool.copy(array)
