"""Evaluators: a row's NumPy function bound to attributes and types, with pooled results."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad import config
from evergrad.core import dtypes
from evergrad.core.eager.copies import in_rows
from evergrad.core.eager.elementwise import loop_evaluator, may_use_loop
from evergrad.core.eager.kernels import may_use_kernel, row_evaluator
from evergrad.core.eager.narrow import may_use_narrow_loop, narrow_evaluator
from evergrad.core.eager.parallel_ufunc import PARALLEL_MIN_ELEMENTS, parallel_ufunc
from evergrad.core.eager.reductions import may_reduce, reduction_evaluator
from evergrad.core.shapes import TensorType
from evergrad.core.types import Array
from evergrad.memory import pool

if TYPE_CHECKING:
    from evergrad.core.op import ArgType, Attrs, Op
    from evergrad.core.types import AnyFunction


# Rows of so many elements are worth a loop each.
_LONG_ROW = 8


def evaluator(
    op: Op,
    attrs: Attrs,
    types: tuple[ArgType, ...],
    operands: tuple[TensorType, ...],
    out_types: tuple[TensorType, ...],
) -> Callable[..., object]:
    """``op.eval`` for these types: the ufunc itself where nothing needs to be added."""
    run = _plain_evaluator(op, attrs, types, operands, out_types)
    if op.prepare_for is not None and not _is_low((*operands, *out_types)):
        run = op.prepare_for(run, *operands, **attrs)
    if may_use_loop(op, types, operands, out_types):
        run = loop_evaluator(op, attrs, operands, out_types[0], run)
    elif may_use_narrow_loop(op, operands, out_types):
        run = narrow_evaluator(op, attrs, operands, out_types[0], run)
    if may_reduce(op, attrs, operands, out_types[0]):
        run = reduction_evaluator(op, attrs, operands[0], out_types[0], run)
    if may_use_kernel(op, operands):
        run = row_evaluator(op, attrs, operands, run)
    return _into_pool(run) if config.POISON and not op.alias else run


def _plain_evaluator(
    op: Op,
    attrs: Attrs,
    types: tuple[ArgType, ...],
    operands: tuple[TensorType, ...],
    out_types: tuple[TensorType, ...],
) -> Callable[..., object]:
    function = op.eval
    run: AnyFunction = function
    if op.prepare is not None:
        run = op.prepare(**attrs)
    elif attrs:
        run = functools.partial(function, **attrs)
    if operands is not types and _wraps_around(types, operands):
        # A Python int takes the tensor's type by wrapping around, as in PyTorch.
        run = _with_wrapped_scalars(run, types, operands)
    if op.upcast and _is_low((*operands, *out_types)):
        return _through_float32(run, out_types)
    if op.outputs > 1 or op.alias:
        return run
    out = out_types[0]
    if isinstance(run, np.ufunc) and op.takes_out:
        short = _short_rows(operands, out)
        if short:
            return _by_columns(run, operands, out, short)
    if op.takes_out and (not out.shape or out.nbytes >= config.POOL_MIN_BYTES):
        is_ufunc = isinstance(run, np.ufunc)
        if isinstance(run, np.ufunc) and out.numel >= PARALLEL_MIN_ELEMENTS:
            run = parallel_ufunc(run)
        if is_ufunc and len(out.shape) > 1:
            return _from_rows(run, out.shape, out.dtype.np)
        return _into_fresh(run, out.shape, out.dtype.np)
    return run if op.takes_out else _as_array(run, out.dtype.np)


def _is_low(types: tuple[TensorType, ...]) -> bool:
    """Whether an element type is evaluated in another one."""
    return True in [isinstance(t, TensorType) and t.dtype.compute is not t.dtype.np for t in types]


def _wraps_around(types: tuple[ArgType, ...], operands: tuple[TensorType, ...]) -> bool:
    return any(
        isinstance(t, type) and isinstance(o, TensorType) and o.dtype.category <= dtypes.INTEGRAL
        for t, o in zip(types, operands, strict=True)
    )


def _with_wrapped_scalars(
    function: Callable[..., object], types: tuple[ArgType, ...], operands: tuple[TensorType, ...]
) -> Callable[..., object]:
    targets = [
        None if isinstance(t, TensorType) else o.dtype.np
        for t, o in zip(types, operands, strict=True)
    ]

    def run(*arrays: object, **extra: object) -> Any:
        values = [
            a if target is None else np.asarray(a).astype(target)
            for a, target in zip(arrays, targets, strict=True)
        ]
        return function(*values, **extra)

    return run


def _through_float32(
    function: Callable[..., object], out_types: tuple[TensorType, ...]
) -> Callable[..., object]:
    low = (dtypes.float16.np, dtypes.bfloat16.np)
    targets = [t.dtype.np for t in out_types]

    def run(*arrays: Any) -> Any:
        values = [a.astype(np.float32) if getattr(a, "dtype", None) in low else a for a in arrays]
        result = function(*values)
        if isinstance(result, tuple):
            return tuple(
                np.asarray(r).astype(t, copy=False) for r, t in zip(result, targets, strict=True)
            )
        return np.asarray(result).astype(targets[0], copy=False)

    return run


def _into_fresh(
    function: Callable[..., object], shape: tuple[int, ...], numpy_type: np.dtype[np.generic]
) -> Callable[..., object]:
    allocate = pool.allocator(shape, numpy_type)

    def run(*arrays: object) -> Any:
        return function(*arrays, out=allocate())

    return run


def _short_rows(operands: tuple[TensorType, ...], out: TensorType) -> int:
    """The number of last dimensions that are together short, before a long one, where operands
    broadcast: NumPy would run one loop for each row. 0 where that is not so."""
    if all(not t.shape or t.shape == out.shape for t in operands):
        return 0
    rank, length = len(out.shape), 1
    for count in range(1, rank):
        length *= out.shape[-count]
        before = out.shape[-count - 1]
        if length >= _LONG_ROW:
            return 0
        if before >= _LONG_ROW:
            return count if length > 1 else 0
    return 0


def _by_columns(
    function: np.ufunc, operands: tuple[TensorType, ...], out: TensorType, short: int
) -> Callable[..., object]:
    """The same with loops along the last long dimension."""
    rank = len(out.shape)
    order = (*range(rank - short, rank), *range(rank - short))
    lifted = [(1,) * (rank - len(t.shape)) + t.shape if t.shape else None for t in operands]
    allocate = pool.allocator(out.shape, out.dtype.np)

    def run(*arrays: Any) -> Any:
        result = allocate()
        given = [
            a if shape is None else a.reshape(shape).transpose(order)
            for a, shape in zip(arrays, lifted, strict=True)
        ]
        function(*given, out=result.transpose(order), order="C")
        return result

    return run


def _from_rows(
    function: Callable[..., object], shape: tuple[int, ...], numpy_type: np.dtype[np.generic]
) -> Callable[..., object]:
    """The same for an elementwise function, of contiguous copies of transposed arrays."""
    allocate = pool.allocator(shape, numpy_type)

    def run(*arrays: object) -> Any:
        for array in arrays:
            if array.__class__ is np.ndarray and not array.flags.c_contiguous:
                return function(*[in_rows(a) for a in arrays], out=allocate())
        return function(*arrays, out=allocate())

    return run


def _into_pool(function: AnyFunction) -> Callable[..., object]:
    """Copy results to pooled memory, which is poisoned when it is released."""

    def moved(array: Array) -> Array:
        return pool.copy(array) if array.flags.c_contiguous else array

    def run(*arrays: Any, **extra: object) -> Any:
        result = function(*arrays, **extra)
        return tuple(map(moved, result)) if isinstance(result, tuple) else moved(result)

    return run


def _as_array(
    function: Callable[..., object], numpy_type: np.dtype[np.generic]
) -> Callable[..., Array]:
    def run(*arrays: object) -> Array:
        return np.asarray(function(*arrays), numpy_type)

    return run
