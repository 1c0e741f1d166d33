"""Elementwise rows that overwrite their first argument, by one native loop.

NumPy's loops are not vectorized where an argument is the result, and rows of several calls need
temporaries. The loop is that of :mod:`evergrad.core.eager.elementwise` with one address for both,
so that ``x.op_()`` has the bits of ``x.op()``.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import addressof, c_char
from typing import TYPE_CHECKING

import numpy as np

from evergrad import config
from evergrad.core.eager.elementwise import (
    Broadcast,
    Loop,
    broadcast_of,
    is_loop_over,
    least_elements,
    may_use_loop,
)
from evergrad.core.eager.parallel_ufunc import PARALLEL_MIN_ELEMENTS, parallel_for
from evergrad.core.row_facts import Cost

if TYPE_CHECKING:
    from evergrad.core.op import Specialization
    from evergrad.core.types import AnyFunction, Array, Leaves

# From so many elements on a loop gains on one NumPy call.
_LEAST_OF_UFUNC = 1 << 12
# Elements of a chunk of a call that runs in parallel.
_CHUNK = 1 << 17

_from_buffer: AnyFunction = c_char.from_buffer


def overwriting(specialization: Specialization) -> Callable[[Array, Leaves], bool] | None:
    """What overwrites the first of some arrays with the result, or gives false and leaves it.
    ``None`` if the row has no loop for these types."""
    op, operands = specialization.op, specialization.operands
    (out,) = specialization.out_types
    if operands[0].dtype is not out.dtype or operands[0].shape != out.shape or not out.numel:
        return None
    evaluate = specialization.run
    if not may_use_loop(op, specialization.types, operands, (out,)):
        is_call = isinstance(op.eval, np.ufunc) and op.emit.cost is Cost.CHEAP
        is_same = all(not t.shape or t.shape == out.shape for t in operands)
        is_long = out.numel >= _LEAST_OF_UFUNC
        if not (is_call and is_same and is_long and is_loop_over(op, operands, (out,))):
            return None
        return _by_loop(specialization, None)

    def copy(target: Array, values: Leaves) -> bool:
        target[...] = evaluate(*values)
        return True

    shapes = [t.shape for t in operands]
    if all(shape == out.shape or not shape for shape in shapes):
        run = _by_loop(specialization, None)
    elif out.numel < PARALLEL_MIN_ELEMENTS:
        run = _by_loop(specialization, broadcast_of(shapes, out.shape))
    else:
        return copy
    return lambda target, values: run(target, values) or copy(target, values)


def _by_loop(
    specialization: Specialization, broadcast: Broadcast | None
) -> Callable[[Array, Leaves], bool]:
    """The loop where no array is strided and none overlaps the target."""
    operands, (out,) = specialization.operands, specialization.out_types
    loop = Loop(specialization.op, specialization.attrs, operands, out, broadcast, in_place=True)
    others = list(zip(loop.is_number, (t.nbytes for t in operands), strict=True))[1:]
    sizes = [t.dtype.itemsize for t in operands if t.shape]
    count, nbytes, number = out.numel, out.nbytes, loop.number
    usual = least_elements(
        tuple(loop.is_number)
    )  # with fewer the form that makes a tensor has no loop

    def run(target: Array, values: Leaves) -> bool:
        forced = config.EAGER_KERNEL_ELEMENTS
        if count < (usual if forced is None else forced) or not config.EAGER_KERNELS:
            return False
        if not target.flags.carray or not loop.is_ready():
            return False
        start = addressof(_from_buffer(target))
        words: Leaves = [start]
        for operand, (is_one, size) in zip(values[1:], others, strict=True):
            if is_one:
                words.append(number(operand))
                continue
            if operand.__class__ is not np.ndarray or not operand.flags.carray:
                return False
            address = addressof(_from_buffer(operand))
            if start < address + size and address < start + nbytes:
                return False
            words.append(address)
        if count < PARALLEL_MIN_ELEMENTS:
            loop.function(*words, *loop.extents)
        else:
            _in_parallel(loop, words, sizes)
        return True

    return run


def _in_parallel(loop: Loop, words: Leaves, sizes: list[int]) -> None:
    count = loop.count

    def chunk(first: int) -> None:
        steps = iter(sizes)
        moved = [
            w if is_one else w + first * next(steps)
            for w, is_one in zip(words, loop.is_number, strict=True)
        ]
        loop.function(*moved, min(_CHUNK, count - first))

    parallel_for(chunk, range(0, count, _CHUNK))
