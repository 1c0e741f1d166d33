"""Evaluators: a row's NumPy function bound to attributes and types, with pooled results."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad import config
from evergrad.core import dtypes
from evergrad.core.eager.elementwise import loop_evaluator, may_use_loop
from evergrad.core.eager.kernels import may_use_kernel, row_evaluator
from evergrad.core.eager.parallel_ufunc import PARALLEL_MIN_ELEMENTS, parallel_ufunc
from evergrad.core.eager.reductions import may_reduce, reduction_evaluator
from evergrad.core.shapes import TensorType
from evergrad.memory import pool

if TYPE_CHECKING:
    from evergrad.core.op import ArgType, Attrs, Op

Array = np.ndarray[Any, Any]


def evaluator(
    op: Op,
    attrs: Attrs,
    types: tuple[ArgType, ...],
    operands: tuple[TensorType, ...],
    out_types: tuple[TensorType, ...],
) -> Callable[..., Any]:
    """``op.eval`` for these types: the ufunc itself where nothing needs to be added."""
    run = _plain_evaluator(op, attrs, types, operands, out_types)
    if may_use_loop(op, types, operands, out_types):
        run = loop_evaluator(op, attrs, operands, out_types[0], run)
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
) -> Callable[..., Any]:
    function = op.eval
    run: Callable[..., Any] = function
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
    if op.takes_out and (not out.shape or out.nbytes >= config.POOL_MIN_BYTES):
        if isinstance(run, np.ufunc) and out.numel >= PARALLEL_MIN_ELEMENTS:
            run = parallel_ufunc(run)
        return _into_fresh(run, out.shape, out.dtype.np)
    return run if op.takes_out else _as_array(run, out.dtype.np)


def _is_low(types: tuple[Any, ...]) -> bool:
    """Whether an element type is evaluated in another one."""
    return True in [isinstance(t, TensorType) and t.dtype.compute is not t.dtype.np for t in types]


def _wraps_around(types: tuple[ArgType, ...], operands: tuple[Any, ...]) -> bool:
    return any(
        isinstance(t, type) and isinstance(o, TensorType) and o.dtype.category <= dtypes.INTEGRAL
        for t, o in zip(types, operands, strict=True)
    )


def _with_wrapped_scalars(
    function: Callable[..., object], types: tuple[ArgType, ...], operands: tuple[TensorType, ...]
) -> Callable[..., Any]:
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
) -> Callable[..., Any]:
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
    function: Callable[..., Any], shape: tuple[int, ...], numpy_type: np.dtype[Any]
) -> Callable[..., Any]:
    allocate = pool.allocator(shape, numpy_type)

    def run(*arrays: object) -> Any:
        return function(*arrays, out=allocate())

    return run


def _into_pool(function: Callable[..., Any]) -> Callable[..., Any]:
    """Copy results to pooled memory, which is poisoned when it is released."""

    def moved(array: Array) -> Array:
        return pool.copy(array) if array.flags.c_contiguous else array

    def run(*arrays: Any, **extra: Any) -> Any:
        result = function(*arrays, **extra)
        return tuple(map(moved, result)) if isinstance(result, tuple) else moved(result)

    return run


def _as_array(function: Callable[..., Any], numpy_type: np.dtype[Any]) -> Callable[..., Any]:
    def run(*arrays: object) -> Array:
        return np.asarray(function(*arrays), numpy_type)

    return run
