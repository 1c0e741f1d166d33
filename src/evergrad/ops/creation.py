"""Tensors from nothing but a description: constants, ranges, and copies of a type.

Rows here take no tensor. Inside a trace they write equations like any other row.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind
from evergrad.core.dtypes import as_dtype, dtype
from evergrad.core.families import opaque
from evergrad.core.op import NONDIFFERENTIABLE
from evergrad.core.shapes import Shape, as_shape, tensor_type
from evergrad.core.tensor import Device, Tensor
from evergrad.memory import pool
from evergrad.ops.public import expose


def check_place(device: Any, layout: Any = None) -> None:
    """Accept every spelling of the CPU, refuse other devices by name."""
    if device is not None and not isinstance(device, Device):
        Device(device)


def finish(tensor: Tensor, requires_grad: bool) -> Tensor:
    return tensor.requires_grad_() if requires_grad else tensor


def _full_eval(value: Any, *, size: Shape, dtype: dtype) -> Any:
    out = pool.empty(size, dtype.np)
    if dtype.category <= dtypes.INTEGRAL:
        value = np.asarray(value).astype(dtype.np)
    out.fill(value)
    return out


FULL = opaque(
    "full", _full_eval, lambda value, *, size, dtype: tensor_type(size, dtype), NONDIFFERENTIABLE,
    upcast=False, doc="One number everywhere.",
)  # fmt: skip


@expose(method=False)
def full(
    size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None, layout: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """One number everywhere."""
    check_place(device)
    if isinstance(fill_value, Tensor):
        if fill_value.ndim:
            raise RuntimeError("full(): the fill value must be a number or a 0-d tensor")
        target = fill_value.dtype if dtype is None else as_dtype(dtype)
        from evergrad.core.bind import cast
        from evergrad.ops.movement import clone, expand

        return finish(clone(expand(cast(fill_value, target), as_shape((size,)))), requires_grad)
    fill_value = _number(fill_value)
    target = dtypes.of_scalar(fill_value) if dtype is None else as_dtype(dtype)
    return finish(_constant(as_shape((size,)), fill_value, target), requires_grad)


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _constant(size: Shape, value: Any, dtype: dtype) -> Tensor:
    if any(n < 0 for n in size):
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(size)}: {list(size)}")
    return bind(FULL, value, size=size, dtype=dtype)  # type: ignore[no-any-return]


def _constant_function(name: str, value: float, doc: str) -> Any:
    def function(
        *size: Any, dtype: Any = None, device: Any = None, layout: Any = None,
        requires_grad: bool = False, pin_memory: bool = False, **named: Any,
    ) -> Tensor:  # fmt: skip
        check_place(device)
        if "size" in named:
            size = (named.pop("size"),)
        if named:
            raise TypeError(f"{name}() got an unexpected keyword argument {next(iter(named))!r}")
        target = dtypes.get_default_dtype() if dtype is None else as_dtype(dtype)
        return finish(_constant(as_shape(size), value, target), requires_grad)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return expose(method=False)(function)


zeros = _constant_function("zeros", 0, "Zero everywhere.")
ones = _constant_function("ones", 1, "One everywhere.")
# Uninitialised memory shows what was there before; zeros cost little and hide nothing.
empty = _constant_function("empty", 0, "A tensor to be filled (evergrad fills it with zeros).")


def _like(name: str, value: float, doc: str) -> Any:
    def function(
        input: Tensor, *, dtype: Any = None, device: Any = None, layout: Any = None,
        requires_grad: bool = False, memory_format: Any = None, pin_memory: bool = False,
    ) -> Tensor:  # fmt: skip
        check_place(device)
        target = input.dtype if dtype is None else as_dtype(dtype)
        return finish(_constant(input._type.shape, value, target), requires_grad)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return expose(method=False, out=False)(function)


zeros_like = _like("zeros_like", 0, "Zeros of the same shape and type.")
ones_like = _like("ones_like", 1, "Ones of the same shape and type.")
empty_like = _like("empty_like", 0, "A tensor of the same shape and type, to be filled.")


@expose(method=False, out=False)
def full_like(
    input: Tensor, fill_value: Any, *, dtype: Any = None, device: Any = None, layout: Any = None,
    requires_grad: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """One number everywhere, in the same shape and type."""
    target = input.dtype if dtype is None else dtype
    return full(input._type.shape, fill_value, dtype=target, requires_grad=requires_grad)


@expose(method=False, out=False)
def scalar_tensor(s: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A number as a 0-d tensor."""
    target = dtypes.get_default_dtype() if dtype is None else as_dtype(dtype)
    return _constant((), s, target)


# -- ranges -------------------------------------------------------------------------------------


def _arange_eval(start: Any, step: Any, *, count: int, dtype: dtype) -> Any:
    wide = np.int64 if dtype.category <= dtypes.INTEGRAL else np.float64
    steps = np.arange(count, dtype=wide)
    return (np.asarray(start).astype(wide) + steps * np.asarray(step).astype(wide)).astype(dtype.np)


ARANGE = opaque(
    "arange", _arange_eval, lambda start, step, *, count, dtype: tensor_type((count,), dtype),
    NONDIFFERENTIABLE, upcast=False, doc="Numbers at equal steps.",
)  # fmt: skip


@expose(method=False)
def arange(
    start: Any = 0, end: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None,
    layout: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Numbers from ``start`` up to, but not including, ``end``."""
    check_place(device)
    if end is None:
        start, end = 0, start
    start, end, step = (
        v.item() if isinstance(v, (Tensor, np.generic)) else v for v in (start, end, step)
    )
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if (end - start) / step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    if dtype is None:
        integral = all(isinstance(v, int) for v in (start, end, step))
        target = dtypes.int64 if integral else dtypes.get_default_dtype()
    else:
        target = as_dtype(dtype)
    if all(isinstance(v, int) for v in (start, end, step)):
        count = -((start - end) // step)
    else:
        count = math.ceil((end - start) / step)
    return finish(bind(ARANGE, start, step, count=count, dtype=target), requires_grad)


