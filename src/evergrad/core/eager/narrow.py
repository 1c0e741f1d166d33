"""Rows on contiguous 16-bit floats, evaluated by one native loop.

NumPy converts all operands to float32 and back, or has no vectorized code for these types. The loop
does the same in registers: it computes in float32 and rounds once. Conversions between 16-bit
floats and float32 are such a loop, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad import config
from evergrad.core import dtypes
from evergrad.core.eager.elementwise import native_loop
from evergrad.core.eager.lanes import buffer_address
from evergrad.core.eager.parallel_ufunc import PARALLEL_MIN_ELEMENTS, parallel_for
from evergrad.core.shapes import TensorType
from evergrad.memory import pool

if TYPE_CHECKING:
    from evergrad.core.op import Attrs, Op
    from evergrad.core.types import Leaves

_NARROW = (dtypes.bfloat16, dtypes.float16)
_OTHERS = (dtypes.float32, dtypes.bool_)
# From so many elements on: for fewer NumPy is as fast.
_LEAST_ELEMENTS = 128
# Loops over fewer elements keep the GIL: releasing it would take as long.
_BRIEF = 1 << 14
# Elements of a chunk of a call that runs in parallel.
_CHUNK = 1 << 17


def may_use_narrow_loop(
    op: Op, operands: tuple[TensorType, ...], out_types: tuple[TensorType, ...]
) -> bool:
    """Whether a row on these types is evaluated by a loop of 16-bit floats."""
    if op.emit.function is None or op.emit.numbered or len(out_types) != 1:
        return False
    out = out_types[0]
    types = (*operands, out)
    kinds = {t.dtype for t in types}
    return (
        not kinds.isdisjoint(_NARROW)
        and kinds <= {*_NARROW, *_OTHERS}
        and all(t.shape == out.shape or not t.shape for t in operands)
        and any(t.shape == out.shape for t in operands)
        and all(t.shape or t.dtype is not dtypes.bool_ for t in operands)
        and out.numel >= _LEAST_ELEMENTS
    )


def narrow_evaluator(
    op: Op, attrs: Attrs, operands: tuple[TensorType, ...], out: TensorType,
    plain: Callable[..., object],
) -> Callable[..., object]:  # fmt: skip
    """An evaluator by one native loop; ``plain`` for arrays that are not contiguous."""
    is_number = [not t.shape for t in operands]
    sizes = [out.dtype.itemsize, *(t.dtype.itemsize for t in operands if t.shape)]
    allocate = pool.allocator(out.shape, out.dtype.np)
    count = out.numel
    loops: Any = None

    def run(*given: Any) -> Any:
        nonlocal loops
        if not config.EAGER_KERNELS:
            return plain(*given)
        words: Leaves = []
        for operand, number in zip(given, is_number, strict=True):
            if number:
                words.append(float(operand))
            elif operand.__class__ is np.ndarray and operand.flags.carray:
                words.append(buffer_address(operand))
            else:
                return plain(*given)
        if loops is None:
            loops = native_loop(op, attrs, operands, out, None)
        if loops is False:
            return plain(*given)
        result = allocate()
        loop = loops[count >= _BRIEF]
        if count < PARALLEL_MIN_ELEMENTS:
            loop(buffer_address(result), *words, count)
        else:
            _in_parallel(loop, [buffer_address(result), *words], sizes, count)
        return result

    return run


def _in_parallel(loop: Any, words: Leaves, sizes: list[int], count: int) -> None:
    """Chunks of a large call by several threads."""

    def chunk(first: int) -> None:
        steps = iter(sizes)
        moved = [w if isinstance(w, float) else w + first * next(steps) for w in words]
        loop(*moved, min(_CHUNK, count - first))

    parallel_for(chunk, range(0, count, _CHUNK))
