"""Rows of several NumPy calls on contiguous floats, evaluated by one native loop.

Below a size nothing changes. Whether the loop is used depends on types and strides alone. On
operands of one shape rows that NumPy evaluates by one call stay with NumPy: those of a ufunc, and
cheap ones that do not state ``eager_loop``. Where whole rows or columns are broadcast NumPy calls
the inner loop of a ufunc for each row, so there all rows with an emitter are loops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from ctypes import addressof, c_char
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evergrad import config
from evergrad.core import dtypes
from evergrad.core.eager.copies import contiguous_copy
from evergrad.core.eager.parallel_ufunc import (
    PARALLEL_MIN_ELEMENTS,
    parallel_for,
    parallel_ufunc,
)
from evergrad.core.row_facts import Cost
from evergrad.core.shapes import Shape, TensorType
from evergrad.extension import ExtensionPoint
from evergrad.memory import pool

if TYPE_CHECKING:
    from evergrad.core.op import ArgType, Attrs, Op
    from evergrad.core.types import AnyFunction, Args, Array, Leaves

_elementwise_kernel: ExtensionPoint[..., object] = ExtensionPoint("elementwise_kernel")

# From so many elements on: for fewer the calls of NumPy are as fast.
_LEAST_ELEMENTS = 4
# The same where the loop is found by the addresses of any number of operands.
_LEAST_OF_MANY = 16
# Loops over fewer elements keep the GIL: releasing it would take as long.
_BRIEF = 1 << 14

# Broadcast operands of one ufunc: for fewer elements NumPy is as fast.
_LEAST_BROADCAST = 1 << 12
# Rows of fewer elements would not fill a vector.
_LEAST_COLUMNS = 16
# Elements of a chunk of a call that runs in parallel.
_CHUNK = 1 << 17

_from_buffer: AnyFunction = c_char.from_buffer

_FLOATS = (dtypes.float32, dtypes.float64)
_INTEGERS = (dtypes.int64, dtypes.int32, dtypes.int16, dtypes.int8, dtypes.uint8)
# Kernels by row, attributes, element types, which operands are numbers and how they broadcast;
# false: there is none.
_kernels: dict[object, Any] = {}


def may_use_loop(
    op: Op, types: tuple[ArgType, ...], operands: Args, out_types: tuple[TensorType, ...]
) -> bool:
    """Whether a row on these types may be evaluated by one native loop."""
    if not is_loop_over(op, operands, out_types):
        return False
    out = out_types[0]
    if all(t.shape == out.shape or not t.shape for t in operands):
        return prefers_loop(op) and any(t.shape == out.shape for t in operands)
    if (
        out.numel < _LEAST_BROADCAST
        and op.emit.cost is Cost.CHEAP
        and isinstance(op.eval, np.ufunc)
        and config.EAGER_KERNEL_ELEMENTS is None
    ):
        return False
    return broadcast_of([t.shape for t in operands], out.shape) is not None


def prefers_loop(op: Op) -> bool:
    """Whether a native loop is faster than what NumPy does on operands of one shape."""
    if op.eager_loop is not None:
        return op.eager_loop
    return op.emit.cost is Cost.EXPENSIVE and not isinstance(op.eval, np.ufunc)


def is_loop_over(
    op: Op, operands: tuple[TensorType, ...], out_types: tuple[TensorType, ...]
) -> bool:
    """Whether a row has a loop over arrays of these element types."""
    if op.emit.function is None or op.emit.numbered or op.eager_loop is False:
        return False
    out = out_types[0]
    return (
        len(out_types) == 1
        and out.dtype in (*_FLOATS, *_INTEGERS, dtypes.bool_)
        and (operands[-1].dtype in _FLOATS or _may_loop_over_integers(op, operands, out))
        and all(_is_supported(t) for t in operands)
    )


def _may_loop_over_integers(op: Op, operands: tuple[TensorType, ...], out: TensorType) -> bool:
    """Whether the loop may compute with integers: NumPy has fast calls for their arithmetic."""
    return op.emit.integers and operands[-1].dtype in _INTEGERS and out.dtype is operands[-1].dtype


def _is_supported(operand: TensorType) -> bool:
    numbers = (*_FLOATS, *_INTEGERS)
    return operand.dtype in numbers or (operand.dtype is dtypes.bool_ and bool(operand.shape))


class Broadcast(NamedTuple):
    """How operands are read for a result of ``rows`` and ``columns``: all of it, one row for all,
    or one element for each row (``is_column``); ``steps`` are the elements from one row of an
    operand to the next."""

    rows: int
    columns: int
    is_column: tuple[bool, ...]
    steps: tuple[int, ...]


def broadcast_of(shapes: Sequence[Shape], out: Shape) -> Broadcast | None:
    """The rows and columns of a result to which all operands broadcast as whole rows or columns."""
    for split in range(1, len(out)):
        rows, columns = math.prod(out[:split]), math.prod(out[split:])
        if columns < _LEAST_COLUMNS or not rows:
            continue
        found = [_steps_of(shape, out, split) for shape in shapes]
        if all(f is not None for f in found):
            kinds = [f for f in found if f is not None]
            return Broadcast(
                rows, columns, tuple([k for k, _ in kinds]), tuple([s for _, s in kinds])
            )
    return None


def _steps_of(shape: Shape, out: Shape, split: int) -> tuple[bool, int] | None:
    """Whether an operand has one element for each row, and its elements from row to row."""
    padded = (1,) * (len(out) - len(shape)) + shape
    above, inside = padded[:split], padded[split:]
    is_column = inside != out[split:]
    if is_column and set(inside) != {1}:
        return None
    if above == out[:split]:
        return is_column, 1 if is_column else math.prod(inside)
    return (is_column, 0) if set(above) <= {1} else None


def loop_evaluator(
    op: Op, attrs: Attrs, operands: tuple[TensorType, ...], out: TensorType,
    plain: Callable[..., object],
) -> Callable[..., object]:  # fmt: skip
    """An evaluator by one native loop from a number of elements on; ``plain`` for fewer. Arrays
    that are not contiguous are copied, so that the bits do not depend on strides."""
    shapes = [t.shape for t in operands]
    broadcast = None
    if not all(shape == out.shape or not shape for shape in shapes):
        broadcast = broadcast_of(shapes, out.shape)
    is_number = tuple([not shape for shape in shapes])
    loop = Loop(op, attrs, operands, out, broadcast)
    count = out.numel
    if len(operands) == 1:
        return _unary_evaluator(loop, count, plain)
    if count < PARALLEL_MIN_ELEMENTS and has_direct_call(is_number):
        direct = _binary_evaluator if is_number == (False, False) else _number_evaluator
        return direct(loop, count, plain)

    def run(*given: object) -> Any:
        forced = config.EAGER_KERNEL_ELEMENTS
        least = _LEAST_OF_MANY if forced is None else forced
        if count < least or not count or not config.EAGER_KERNELS:
            return plain(*given)
        words = _words(given, loop.number)
        if words is None:
            given = tuple(map(in_order, given))
            words = _words(given, loop.number)
        if words is None or not loop.is_ready():
            return plain(*given)
        return loop.run(given, words)

    return run


def has_direct_call(is_number: tuple[bool, ...]) -> bool:
    """Whether there is a call without a list of operands: of two arrays, or of one and numbers."""
    return is_number == (False, False) or (not is_number[0] and all(is_number[1:]))


def least_elements(is_number: tuple[bool, ...]) -> int:
    """From how many elements on a loop is used on such operands."""
    return _LEAST_ELEMENTS if has_direct_call(is_number) else _LEAST_OF_MANY


def _words(operands: Sequence[Any], number: Callable[[Any], float]) -> list[float] | None:
    """Operands as a loop takes them: numbers, and addresses of arrays; ``None`` if one is
    strided."""
    words: Leaves = []
    for operand in operands:
        if operand.__class__ is float:
            words.append(operand)
        elif operand.__class__ is not np.ndarray or not operand.shape:
            words.append(number(operand))
        elif operand.flags.carray:
            words.append(addressof(_from_buffer(operand)))
        else:
            return None
    return words


def in_order(operand: Any) -> Array | float:
    """An operand that a loop can read: itself, or a contiguous copy of a strided array."""
    is_readable = operand.__class__ is not np.ndarray or not operand.shape or operand.flags.carray
    return operand if is_readable else contiguous_copy(operand)


def _unary_evaluator(loop: Loop, count: int, plain: Callable[..., object]) -> Callable[..., object]:
    """The same for one operand, without a list of operands."""

    def run(operand: Any) -> Any:
        forced = config.EAGER_KERNEL_ELEMENTS
        least = _LEAST_ELEMENTS if forced is None else forced
        if count < least or not count or not config.EAGER_KERNELS or not loop.is_ready():
            return plain(operand)
        if not operand.flags.carray:
            operand = contiguous_copy(operand)
        if count >= PARALLEL_MIN_ELEMENTS:
            return loop.run((operand,), [addressof(_from_buffer(operand))])
        result = loop.allocate()
        loop.function(addressof(_from_buffer(result)), addressof(_from_buffer(operand)), count)
        return result

    return run


def _binary_evaluator(
    loop: Loop, count: int, plain: Callable[..., object]
) -> Callable[..., object]:
    """The same for two operands with dimensions."""
    extents = loop.extents

    def run(a: Any, b: Any) -> Any:
        forced = config.EAGER_KERNEL_ELEMENTS
        least = _LEAST_ELEMENTS if forced is None else forced
        if count < least or not count or not config.EAGER_KERNELS:
            return plain(a, b)
        function: Any = loop.function if loop.made or loop.is_ready() else False
        if function is False:
            return plain(a, b)
        if not (a.flags.carray and b.flags.carray):
            a, b = in_order(a), in_order(b)
        result = loop.allocate()
        function(
            addressof(_from_buffer(result)), addressof(_from_buffer(a)),
            addressof(_from_buffer(b)), *extents,
        )  # fmt: skip
        return result

    return run


def _number_evaluator(
    loop: Loop, count: int, plain: Callable[..., object]
) -> Callable[..., object]:
    """The same for one operand with dimensions, and numbers behind it."""
    number = loop.number

    def run(operand: Any, *numbers: Any) -> Any:
        forced = config.EAGER_KERNEL_ELEMENTS
        least = _LEAST_ELEMENTS if forced is None else forced
        if count < least or not count or not config.EAGER_KERNELS or not loop.is_ready():
            return plain(operand, *numbers)
        if not operand.flags.carray:
            operand = contiguous_copy(operand)
        result = loop.allocate()
        loop.function(
            addressof(_from_buffer(result)), addressof(_from_buffer(operand)),
            *map(number, numbers), count,
        )  # fmt: skip
        return result

    return run


def any_extent_loop(
    op: Op, attrs: Attrs, operands: tuple[TensorType, ...], out: TensorType,
    plain: Callable[..., object],
) -> Callable[..., object]:  # fmt: skip
    """The same for small operands of any one shape and numbers; ``plain`` for all others."""
    is_number = tuple([not t.shape for t in operands])
    number = _number_for(operands)
    numpy_type = out.dtype.np
    found: Any = None

    def run(*given: Any) -> Any:
        nonlocal found
        shape: Any = None
        words: Leaves = []
        copies: Leaves = []
        for operand, is_one in zip(given, is_number, strict=True):
            if is_one:
                words.append(number(operand))
                continue
            if operand.__class__ is not np.ndarray or not operand.size:
                return plain(*given)
            if not operand.flags.carray:
                operand = contiguous_copy(operand)
                copies.append(operand)  # alive until the loop has run
            if shape is None:
                shape, count = operand.shape, operand.size
            elif operand.shape != shape:
                return plain(*given)
            words.append(addressof(_from_buffer(operand)))
        forced = config.EAGER_KERNEL_ELEMENTS
        least = _LEAST_ELEMENTS if forced is None else forced
        if count < least or not config.EAGER_KERNELS:
            return plain(*given)
        if found is None:
            found = native_loop(op, attrs, operands, out, None)
        if found is False:
            return plain(*given)
        result = np.empty(shape, numpy_type)
        found[count >= _BRIEF](addressof(_from_buffer(result)), *words, count)
        return result

    return run


class Loop:
    """The native loop of a row for some types, compiled by the first call; with ``in_place`` one
    that overwrites the first operand."""

    __slots__ = (
        "allocate", "broadcast", "count", "extents", "function", "in_place", "is_number", "key",
        "made", "number", "sizes",
    )  # fmt: skip

    def __init__(
        self, op: Op, attrs: Attrs, operands: tuple[TensorType, ...], out: TensorType,
        broadcast: Broadcast | None, in_place: bool = False,
    ) -> None:  # fmt: skip
        self.count = out.numel
        self.allocate = pool.allocator(out.shape, out.dtype.np)
        self.broadcast = broadcast
        self.key = op, attrs, operands, out
        self.in_place = in_place
        self.number = _number_for(operands)
        self.is_number = [not t.shape for t in operands]
        self.sizes = [t.dtype.itemsize for t in (*operands, out)]
        self.function: Any = None
        self.made = False
        # The numbers after the addresses: how many elements; or bytes from row to row of each
        # operand with dimensions, rows and columns.
        self.extents: tuple[int, ...] = (self.count,)
        if broadcast is not None:
            steps = [
                step * t.dtype.itemsize
                for t, step in zip(operands, broadcast.steps, strict=True)
                if t.shape
            ]
            self.extents = (*steps, broadcast.rows, broadcast.columns)

    def is_ready(self) -> bool:
        if not self.made:
            found = native_loop(*self.key, self.broadcast, self.in_place)
            self.function = found and found[self.count >= _BRIEF]
            self.made = True
        return self.function is not False

    def run(self, given: tuple[Any, ...], words: Leaves) -> Any:
        result = self.allocate()
        if self.count < PARALLEL_MIN_ELEMENTS:
            self.function(addressof(_from_buffer(result)), *words, *self.extents)
        elif self.broadcast is None:
            _in_parallel(self.function, given, result, self.number)
        else:
            self.rows_in_parallel(_address(result), words)
        return result

    def rows_in_parallel(self, out: int, words: Leaves) -> None:
        broadcast = self.broadcast
        assert broadcast is not None
        *steps, rows, columns = self.extents
        most = max(1, _CHUNK // columns)
        row_bytes = columns * self.sizes[-1]

        def chunk(first: int) -> None:
            offsets = iter(steps)
            moved = [
                w if is_one else w + first * next(offsets)
                for w, is_one in zip(words, self.is_number, strict=True)
            ]
            count = min(most, rows - first)
            self.function(out + first * row_bytes, *moved, *steps, count, columns)

        parallel_for(chunk, range(0, rows, most))


def native_loop(
    op: Op, attrs: Attrs, operands: tuple[TensorType, ...], out: TensorType,
    broadcast: Broadcast | None, in_place: bool = False,
) -> Any:  # fmt: skip
    """The kernel for these element types, with and without the GIL; false if there is none."""
    is_column = None if broadcast is None else broadcast.is_column
    kinds = tuple([(t.dtype, not t.shape) for t in operands])
    key = op.name, tuple(attrs.items()), out.dtype, kinds, is_column, in_place
    found = _kernels.get(key)
    if found is None:
        found = _elementwise_kernel(op, attrs, operands, out, is_column, in_place) or False
        _kernels[key] = found
    return found


def _in_parallel(loop: Any, operands: Args, result: Array, number: Callable[[Any], float]) -> None:
    """Chunks of a large call by several threads."""

    def chunk(*given: Any, out: Array) -> None:
        words = [_address(o) if o.__class__ is np.ndarray else o for o in given]
        loop(_address(out), *words, out.size)

    numbers = [o if isinstance(o, np.ndarray) and o.ndim else number(o) for o in operands]
    parallel_ufunc(chunk)(*numbers, out=result)


def _number_for(operands: tuple[TensorType, ...]) -> Callable[[Any], float]:
    """What makes a number of an operand without dimensions: rows that take integers as such promote
    all their numbers alike."""
    return int if operands[-1].dtype in _INTEGERS else float


def _address(array: Any) -> int:
    return addressof(c_char.from_buffer(array))
