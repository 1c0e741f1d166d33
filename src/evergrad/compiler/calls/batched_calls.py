"""Batched calls of a step: a native loop over the rows of its arguments.

A call costs microseconds of Python under the GIL, as long as a small step takes itself. In a loop
only the first rows are ordinary calls, until a compiled program handles the others; these run
natively, one after the other, without the GIL. The loop returns to Python periodically to check for
interrupts.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.compiler.calls.call_path import is_native_only
from evergrad.compiler.frontend.effects.outputs import Form
from evergrad.compiler.frontend.variant import Call, Variant
from evergrad.compiler.native import jit
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

if TYPE_CHECKING:
    from evergrad.compiler.api import Compiled
    from evergrad.core.types import Args, Array, Kwargs, Leaves

# Target duration of a slice of the loop between checks for interrupts; and the rows of the first
# slice, by the program's duration class.
_SLICE_SECONDS = 0.01
_ROWS = {LONG: 1, SHORT: 128, BRIEF: 1024}

# Words of a loop: [0] the run function, [1] the thread pool or null, [2] the run, [3] rows done so
# far, [4] number of patched argument words, [5] their table (word, start, stride), [6] number of
# copies after each run, [7] their table (from, to, bytes, stride). ``loop`` goes on until so many
# rows are done, or one has failed.
_IR = r"""
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

; Copies small outputs and late writes after the run of a row.
define internal void @copy_all(i64 %count, ptr %copies, i64 %row) alwaysinline nounwind {
entry:
  br label %next
next:
  %n = phi i64 [0, %entry], [%n1, %one]
  %more = icmp slt i64 %n, %count
  br i1 %more, label %one, label %end
one:
  %this = getelementptr [4 x i64], ptr %copies, i64 %n
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
  %pool = call ptr @address(ptr %words, i64 1)
  %run = call ptr @address(ptr %words, i64 2)
  %donep = getelementptr i64, ptr %words, i64 3
  %patch_count = call i64 @entry(ptr %words, i64 4)
  %patches = call ptr @address(ptr %words, i64 5)
  %copy_count = call i64 @entry(ptr %words, i64 6)
  %copies = call ptr @address(ptr %words, i64 7)
  br label %next
next:
  %row = load i64, ptr %donep
  %more = icmp slt i64 %row, %end
  br i1 %more, label %patch_all, label %stop
patch_all:
  %p = phi i64 [0, %next], [%p1, %write]
  %more_patches = icmp slt i64 %p, %patch_count
  br i1 %more_patches, label %write, label %go
write:
  %patch = getelementptr [3 x i64], ptr %patches, i64 %p
  %p1 = add i64 %p, 1
  %word = call ptr @address(ptr %patch, i64 0)
  %start = call ptr @address(ptr %patch, i64 1)
  %distance = call i64 @entry(ptr %patch, i64 2)
  %far = mul i64 %distance, %row
  %patched = getelementptr i8, ptr %start, i64 %far
  store ptr %patched, ptr %word
  br label %patch_all
go:
  %failed = call i64 %runs(ptr %pool, ptr %run)
  %fine = icmp eq i64 %failed, 0
  br i1 %fine, label %copy, label %stop
copy:
  call void @copy_all(i64 %copy_count, ptr %copies, i64 %row)
  %row1 = add i64 %row, 1
  store i64 %row1, ptr %donep
  br label %next
stop:
  ret void
}
"""


@cache
def _loop() -> Callable[[int, int], None]:
    address = jit.addresses_in(_IR, ("loop",))["loop"]
    return jit.function_of(address, ctypes.c_void_p, ctypes.c_int64)  # type: ignore[no-any-return]


def loop_of(step: Compiled, args: Args, kwargs: Kwargs) -> object:
    """The stacked results of the step for each row of the tensors among its arguments, in order;
    other arguments are passed to every call."""
    leaves, spec = tree_flatten((args, kwargs))
    count = _rows_of([leaf for leaf in leaves if isinstance(leaf, Tensor)])
    is_traced = STATE.get().trace is not None  # part of a larger program
    found: Leaves = []
    while len(found) < count:
        row = [leaf[len(found)] if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        its_args, its_kwargs = tree_unflatten(row, spec)
        with step.step_lock:
            variant = None
            if not is_traced:
                variant = step.valid_variant(step.call_with(its_args, its_kwargs))
            if variant is not None and _can_loop(variant, row):
                return _Loop(variant, leaves, count, found).results()
        try:
            found.append(step(*its_args, **its_kwargs))
        except Exception as error:
            _note(error, len(found))
            raise
    return _stacked(found)


def _note(error: Exception, row: int) -> None:
    """Add the failed row to an error."""
    error.add_note(f"in row {row} of a loop; the rows before it are done")


def _rows_of(tensors: Sequence[Tensor]) -> int:
    """The number of rows (size of the first dimension) of the tensors."""
    if not tensors or not all(t.ndim for t in tensors):
        raise ValueError(
            "loop() iterates over the rows (the first dimension) of its tensor arguments.\n"
            "  fix: pass at least one tensor, and expand() what is the same for all rows."
        )
    counts = [t._type.shape[0] for t in tensors]
    if len(set(counts)) > 1 or not counts[0]:
        raise ValueError(
            f"loop() needs the same number of rows, one at least, in all tensors; got {counts}"
        )
    return counts[0]


def _stacked(found: Sequence[object]) -> Any:
    """The results of consecutive calls, stacked."""
    rows = [tree_flatten(result) for result in found]
    leaves, spec = rows[0]
    if not all(isinstance(leaf, Tensor) for leaf in leaves):
        raise TypeError(
            f"loop() stacks tensors, but the step returned {found[0]!r}.\n"
            "  fix: return tensors only from the step; take numbers from them afterwards."
        )
    value: Tensor | dict[str, Tensor] | None = tree_unflatten(
        [stack(column) for column in zip(*(r for r, _ in rows), strict=True)], spec
    )
    return value


def _can_loop(variant: Variant, row: Sequence[object]) -> bool:
    """Whether the calls of a variant are single native runs with results of a common form."""
    tensors = [leaf for leaf in row if isinstance(leaf, Tensor)]
    program, captured = variant.program, variant.captured
    if not is_native_only(variant) or captured.results.form is Form.OTHER or not program.bound:
        return False
    if (
        captured.fixed
        or variant.aliases_written(tensors)
        or any(t._grad is not g for t, g in captured.grads)
    ):
        return False
    if not program.is_single_run or program.copied or not _is_copied_whole(program):
        return False
    # The RNG state advanced by a failed run would be lost.
    return not (program.is_random and program.can_fail)


class _Loop:
    """The rows of a loop that a variant's program handles, after those of ordinary calls."""

    def __init__(
        self, variant: Variant, leaves: Sequence[object], count: int, found: Sequence[object]
    ) -> None:
        self.variant = variant
        self.program = variant.program
        self.count = count
        self.first = len(found)
        self.tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        self.arguments = [_with_contiguous_rows(tensor._value) for tensor in self.tensors]
        outputs = variant.captured.graph.outputs[: variant.captured.result_count]
        self.types = [tensor_type((count, *o.type.shape), o.type.dtype) for o in outputs]
        self.stacks = [pool.empty(type.shape, type.dtype.np) for type in self.types]
        for row, result in enumerate(found):
            for rows, tensor in zip(self.stacks, tree_flatten(result)[0], strict=True):
                rows[row] = tensor._value

    def results(self) -> Any:
        variant, program = self.variant, self.program
        variant.invalidate_numbers()
        variant.update_numbers()
        program.unbind_arguments()
        (segment,) = program.segments
        patches, copies = _table(self.patches()), _table(self.copies())
        words = _table([
            native()["pool_run"], 0, segment.address, self.first, len(patches) // 3,
            address_of(patches), len(copies) // 4, address_of(copies),
        ])  # fmt: skip
        program.rng_states.load()
        threads = segment.acquire_pool(program.threads)
        try:
            if threads is not None:
                words[1] = threads.address
            self.run(segment, words)
        finally:
            if threads is not None:
                threads.release()
            program.rng_states.store()
            for storage in program.executable.written:
                storage.version += int(words[3]) - self.first
        made = [fresh(rows, type) for rows, type in zip(self.stacks, self.types, strict=True)]
        return variant.captured.results.assemble(made, self.tensors)

    def run(self, segment: Run, words: Any) -> None:
        """Run row after row, in slices short enough for interrupts."""
        loop, address, at_once = _loop(), address_of(words), _ROWS[segment.length]
        while (done := int(words[3])) < self.count:
            began = time.perf_counter()
            loop(address, min(done + at_once, self.count))
            if segment.status_word[0]:
                raise self.failure(int(words[3]))
            if time.perf_counter() - began < _SLICE_SECONDS:
                at_once *= 2

    def failure(self, row: int) -> Exception:
        error = Call(self.variant, [tensor[row] for tensor in self.tensors]).failed_lookup()
        _note(error, row)
        return error

    def patches(self) -> list[tuple[int, int, int]]:
        """The argument words that change from row to row, with start and stride: arguments, and
        outputs that kernels write in place."""
        program = self.program
        rows = [(number, self.arguments[owner]) for number, owner in program.argument_buffers]
        rows += [(view.buffer.number, self.stacks[n]) for n, view in program.computed]
        return [
            (address_of(block.obj) + 8 * slot, address_of(array) + offset, array.strides[0])
            for number, array in rows
            for block, slot, offset in program.patches.get(number, ())
        ]

    def copies(self) -> list[tuple[int, int, int, int]]:
        """Copies after each run: small outputs to their rows, and late writes to captured
        tensors."""
        program = self.program
        copies = [
            (small, self.stacks[n], self.stacks[n].strides[0]) for n, small in program.small_outputs
        ]
        copies += [(source, target, 0) for source, target in _late_copies(program)]
        return [
            (address_of(source), address_of(target), source.nbytes, distance)
            for source, target, distance in copies
        ]


def _late_copies(program: Program) -> list[tuple[Array, Array]]:
    """Copies to captured tensors after a run: (source, target) arrays."""
    return [(program.array(view), storage.value) for view, storage in program.executable.copies]


def _is_copied_whole(program: Program) -> bool:
    """Whether sources and targets of the copies after a run are contiguous."""
    arrays = [small for _, small in program.small_outputs]
    arrays += [array for pair in _late_copies(program) for array in pair]
    return all(array.flags.c_contiguous for array in arrays)


def _table(rows: Sequence[int | tuple[int, ...]]) -> Array:
    """A flat int64 table of numbers and addresses for native code."""
    return isolated_copy(rows, np.int64).reshape(-1)


def _with_contiguous_rows(array: Array) -> Array:
    """The array, or a copy, with contiguous rows."""
    return array if array[0].flags.c_contiguous else pool.copy(array)
