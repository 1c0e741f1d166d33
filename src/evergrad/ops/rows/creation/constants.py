"""Tensors from nothing but a description: constants, ranges, copies of a type.

Rows here take no tensor. Inside a trace they write equations like any other row. A range of floats
is rounded where PyTorch's kernel rounds it, so that the last bits agree too.
"""

from __future__ import annotations

import functools
import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind, cast
from evergrad.core.compound import Compound
from evergrad.core.device import check_device
from evergrad.core.dtypes import as_dtype, dtype
from evergrad.core.exact import fma64
from evergrad.core.families import opaque
from evergrad.core.functionalize import SymbolicNumber
from evergrad.core.meta import placed
from evergrad.core.namespace import late_bound, ops
from evergrad.core.op import NONDIFFERENTIABLE
from evergrad.core.python_numbers import DeferredNumber, PythonNumber, value_of
from evergrad.core.row_facts import AutocastPolicy, lowered, numpy_evaluates
from evergrad.core.shapes import Shape, as_shape, tensor_type
from evergrad.core.tensor import Array, Tensor
from evergrad.keywords import unknown_keyword
from evergrad.memory import pool
from evergrad.ops.rows.creation.quick import quick_array, quick_constant, quick_constant_like
from evergrad.ops.rows.movement.strided import as_strided
from evergrad.ops.rows.movement.views import clone, expand
from evergrad.ops.surface.public import TensorFunction, expose, write_out

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike, DtypeLike, Ints, LayoutLike, MemoryFormatLike

# PyTorch's range kernel fills vectors of this size, each from its own first element.
_VECTOR_BYTES = 32


def check_place(device: DeviceLike, layout: LayoutLike = None) -> None:
    """Accept every spelling of the CPU, refuse other devices by name."""
    if device is not None:
        check_device(device)


def finish(tensor: Tensor, requires_grad: bool) -> Tensor:
    return tensor.requires_grad_() if requires_grad else tensor


def chosen_dtype(dtype: DtypeLike, out: Tensor | None = None) -> dtype:
    """The requested element type, that of ``out=``, or the default."""
    if dtype is not None:
        return as_dtype(dtype)
    return dtypes.get_default_dtype() if out is None else out.dtype


def deliver(name: str, made: Tensor, out: Tensor | None, requires_grad: bool) -> Tensor:
    """A new tensor, or ``out`` with its elements."""
    return finish(made, requires_grad) if out is None else write_out(name, out, made)


def check_number(value: Any, target: dtype) -> None:
    """Raise if a number has no counterpart in an element type; negatives wrap in uint8."""
    if target is dtypes.bool_:
        return
    real, imag = (value.real, value.imag) if isinstance(value, complex) else (value, 0)
    lowest, largest = _limits(target)
    fits = lowest <= real <= largest
    if target.category >= dtypes.FLOATING:
        fits = fits or not math.isfinite(real)
    if not fits or (imag and not target.is_complex):
        raise RuntimeError(f"value cannot be converted to type {target.name} without overflow")


@functools.cache
def _limits(target: dtype) -> tuple[float, float]:
    if target.category >= dtypes.FLOATING:
        largest = dtypes.finfo(target).max
        return -largest, largest
    info = dtypes.iinfo(target)
    return info.min if target.is_signed else -info.max, info.max


# -- one number everywhere ----------------------------------------------------------------------


def _full_eval(value: object, *, size: Shape, dtype: dtype) -> Array:
    out = pool.empty(size, dtype.np)
    if dtype.category <= dtypes.INTEGRAL:
        value = np.asarray(value).astype(dtype.np)
    elif isinstance(value, complex) and not dtype.is_complex:
        value = value.real
    out.fill(value)
    return out


FULL = opaque(
    "full", _full_eval, lambda value, *, size, dtype: tensor_type(size, dtype), NONDIFFERENTIABLE,
    upcast=False,
    emit=lowered("a literal of the loops that read it"), autocast=AutocastPolicy.KEEP,
    doc="One number everywhere.",
)  # fmt: skip


@expose(method=False, out=False)
@placed
def full(
    size: object, fill_value: object, *, out: Tensor | None = None, dtype: DtypeLike = None,
    device: DeviceLike = None, layout: LayoutLike = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """One number everywhere."""
    check_place(device)
    shape = as_shape((size,))
    if dtype is None and out is not None:
        dtype = out.dtype
    if isinstance(fill_value, Tensor):
        if fill_value.ndim or fill_value.requires_grad:
            raise TypeError(
                "full(): argument 'fill_value' must be a number; a tensor that requires a gradient "
                "is repeated by expand()"
            )
        target = _kind_of_number(fill_value.dtype) if dtype is None else as_dtype(dtype)
        made = clone(expand(cast(fill_value, target), shape))
    else:
        number = as_number(fill_value)
        is_computed = type(number) is DeferredNumber and number.kind is float
        is_float = isinstance(number, SymbolicNumber) or is_computed
        kind = dtypes.get_default_dtype() if is_float else None
        target = as_dtype(dtype or kind or dtypes.of_scalar(value_of(number)))
        made = constant(shape, number, target)
    return deliver("full", made, out, requires_grad)


def _kind_of_number(type: dtype) -> dtype:
    """The type of a tensor made of a Python number that an element of ``type`` becomes."""
    if type.is_complex:
        return dtypes.get_default_dtype().to_complex()
    if type.is_floating_point:
        return dtypes.get_default_dtype()
    return type if type is dtypes.bool_ else dtypes.int64


def constant(size: Shape, value: object, dtype: dtype) -> Tensor:
    """One number everywhere, after checking that the size and the number can be."""
    if size and min(size) < 0:
        negative = min(size)
        raise RuntimeError(
            f"Trying to create tensor with negative dimension {negative}: {list(size)}"
        )
    if type(value) is PythonNumber:
        value = value.symbolic() if dtype.is_floating_point else value.read()
    if type(value) is DeferredNumber:
        is_float = value.kind is float and dtype.is_floating_point
        value = SymbolicNumber(value.tensor) if is_float else value.read()
    if isinstance(value, SymbolicNumber):
        return clone(expand(cast(value.tensor, dtype), size))
    if value != 0 and value != 1:
        check_number(value, dtype)
    return bind(FULL, value, size=size, dtype=dtype)  # type: ignore[no-any-return]


def _constant_function(name: str, value: int, doc: str) -> TensorFunction:
    def function(
        *size: object, out: Tensor | None = None, dtype: DtypeLike = None,
        device: DeviceLike = None, layout: LayoutLike = None, requires_grad: bool = False,
        pin_memory: bool = False, memory_format: MemoryFormatLike = None, **named: object,
    ) -> Tensor:  # fmt: skip
        check_place(device)
        made = constant(named_size(name, size, named), value, chosen_dtype(dtype, out))
        return deliver(name, made, out, requires_grad)

    def method(
        self: Tensor, *size: object, dtype: DtypeLike = None, device: DeviceLike = None,
        layout: LayoutLike = None, requires_grad: bool = False, pin_memory: bool = False,
        **named: object,
    ) -> Tensor:  # fmt: skip
        check_place(device)
        target = self.dtype if dtype is None else as_dtype(dtype)
        shape = named_size(method.__name__, size, named)
        return finish(constant(shape, value, target), requires_grad)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    method.__name__ = method.__qualname__ = f"new_{name}"
    method.__doc__ = f"{doc} In this tensor's element type."
    expose(function=False)(placed(method, like=True))
    return expose(method=False, out=False)(quick_constant(value)(placed(function)))


_OPTIONS = (
    "size", "out", "dtype", "device", "layout", "requires_grad", "pin_memory", "memory_format",
    "generator",
)  # fmt: skip


def named_size(name: str, size: tuple[object, ...], named: dict[str, object]) -> Shape:
    """Sizes given one by one, as a sequence, or by name."""
    if "size" in named:
        size = (named.pop("size"),)
    if named:
        raise unknown_keyword(name, next(iter(named)), _OPTIONS)
    return as_shape(size)


zeros: TensorFunction = late_bound(_constant_function("zeros", 0, "Zero everywhere."))
ones: TensorFunction = _constant_function("ones", 1, "One everywhere.")
# Uninitialised memory shows what was there before; zeros cost little and hide nothing.
empty: TensorFunction = _constant_function(
    "empty", 0, "A tensor to be filled (evergrad fills it with zeros)."
)


def _like(name: str, value: int, doc: str) -> TensorFunction:
    def function(
        input: Tensor, *, dtype: DtypeLike = None, device: DeviceLike = None,
        layout: LayoutLike = None, requires_grad: bool = False,
        memory_format: MemoryFormatLike = None, pin_memory: bool = False,
    ) -> Tensor:  # fmt: skip
        check_place(device)
        target = input.dtype if dtype is None else as_dtype(dtype)
        if isinstance(input, Compound) and not (input.is_meta and device is not None):
            return finish(input.filled(value, target), requires_grad)
        return finish(constant(input._type.shape, value, target), requires_grad)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return expose(method=False, out=False)(quick_constant_like(value)(placed(function, like=True)))


zeros_like: TensorFunction = late_bound(_like("zeros_like", 0, "Zeros of the same shape and type."))
ones_like: TensorFunction = _like("ones_like", 1, "Ones of the same shape and type.")
empty_like: TensorFunction = _like(
    "empty_like", 0, "A tensor of the same shape and type, to be filled."
)


@expose(method=False, out=False)
def full_like(
    input: Tensor, fill_value: Tensor | complex | np.generic, *, dtype: DtypeLike = None,
    device: DeviceLike = None, layout: object = None, requires_grad: bool = False,
    memory_format: object = None, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """One number everywhere, in the same shape and type."""
    target = input.dtype if dtype is None else dtype
    if isinstance(input, Compound):
        return finish(input.filled(fill_value, as_dtype(target)), requires_grad)
    return full(
        input._type.shape, fill_value, dtype=target, device=device, requires_grad=requires_grad
    )


@expose(function=False)
def new_full(
    self: Tensor, size: object, fill_value: object, *, dtype: DtypeLike = None,
    device: DeviceLike = None, layout: LayoutLike = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """One number everywhere, in this tensor's element type."""
    target = self.dtype if dtype is None else dtype
    return full(size, fill_value, dtype=target, device=device, requires_grad=requires_grad)


@expose(method=False, out=False)
@placed
def scalar_tensor(
    s: object, *, dtype: DtypeLike = None, device: DeviceLike = None, layout: LayoutLike = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A number as a 0-d tensor."""
    check_place(device)
    return finish(constant((), s, chosen_dtype(dtype)), requires_grad)


@expose(method=False, out=False)
@placed
def empty_strided(
    size: object, stride: Ints, *, dtype: DtypeLike = None, device: DeviceLike = None,
    layout: LayoutLike = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor with the given strides, to be filled (evergrad fills it with zeros)."""
    check_place(device)
    shape, steps = as_shape((size,)), as_shape((stride,))
    reach = 1 + sum((n - 1) * s for n, s in zip(shape, steps, strict=False))
    memory = constant((max(reach, 0),), 0, chosen_dtype(dtype))
    return finish(as_strided(memory, shape, steps), requires_grad)


@expose(method=False, out=False)
def empty_permuted(
    size: object, physical_layout: object, *, dtype: DtypeLike = None, device: DeviceLike = None,
    layout: LayoutLike = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor to be filled whose dimensions are in memory in the order ``physical_layout``.

    Args:
        size: the shape
        physical_layout: the dimensions from the outermost in memory to the innermost
        dtype: element type; default the default type of floats
        device: only the CPU
        layout, pin_memory: accepted
        requires_grad: default ``False``

    >>> eg.empty_permuted((2, 3), (1, 0)).stride()
    (1, 2)
    """
    shape, order = as_shape((size,)), as_shape((physical_layout,))
    if len(order) != len(shape):
        raise RuntimeError(
            "Number of dimensions in size does not match the length of the physical_layout; i.e. "
            f"len(size) = {len(shape)} is not equal to len(physical_layout) = {len(order)}"
        )
    if set(order) != set(np.arange(len(shape)).tolist()):
        raise RuntimeError(
            f"Expected physical_layout to be a permutation of the dimensions, got {list(order)}"
        )
    strides, step = [0] * len(shape), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return empty_strided(shape, strides, dtype=dtype, device=device, requires_grad=requires_grad)


@expose(function=False)
def new_empty_strided(
    self: Tensor, size: object, stride: Ints, *, dtype: DtypeLike = None, device: DeviceLike = None,
    layout: LayoutLike = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor with the given strides and this tensor's element type, to be filled."""
    target = self.dtype if dtype is None else dtype
    return empty_strided(size, stride, dtype=target, device=device, requires_grad=requires_grad)


@expose(function=False)
def new_tensor(
    self: Tensor, data: object, *, dtype: DtypeLike = None, device: DeviceLike = None,
    layout: LayoutLike = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor with a copy of the data, in this tensor's element type."""
    target = self.dtype if dtype is None else dtype
    return ops.tensor(data, dtype=target, device=device, requires_grad=requires_grad)


# -- the identity -------------------------------------------------------------------------------

EYE = opaque(
    "eye", lambda *, size, dtype: np.eye(*size, dtype=dtype.np),
    lambda *, size, dtype: tensor_type(size, dtype), NONDIFFERENTIABLE, upcast=False,
    emit=numpy_evaluates("evaluated once, when constants are folded"), autocast=AutocastPolicy.KEEP,
    doc="Ones on the diagonal.",
)  # fmt: skip


@expose(method=False, out=False)
@quick_array
@placed
def eye(
    n: int, m: int | None = None, *, out: Tensor | None = None, dtype: DtypeLike = None,
    device: DeviceLike = None, layout: LayoutLike = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A matrix with ones on the diagonal and zeros elsewhere."""
    check_place(device)
    size = as_shape((n, n if m is None else m))
    for name, extent in zip("nm", size, strict=True):
        if extent < 0:
            raise RuntimeError(f"{name} must be greater or equal to 0, got {extent}")
    made = bind(EYE, size=size, dtype=chosen_dtype(dtype, out))
    return deliver("eye", made, out, requires_grad)


def as_number(value: object) -> Any:
    """A number given as such, by NumPy or as a tensor of one element."""
    return value.item() if isinstance(value, Tensor | np.generic) else value


# -- arange -------------------------------------------------------------------------------------


def _arange_eval(start: float, step: float, *, count: int, dtype: dtype) -> Array:
    if dtype.category <= dtypes.INTEGRAL:
        if start == 0 and step == 1:
            return np.arange(count, dtype=np.int64).astype(dtype.np, copy=False)
        steps = np.arange(count, dtype=np.int64)
        return (int(start) + steps * int(step)).astype(dtype.np)
    places = np.arange(count, dtype=np.float64)
    width = _VECTOR_BYTES // dtype.itemsize
    vectors = places[: count - count % (2 * width)]  # they are filled in pairs
    within = vectors % width
    values = fma64(places, step, start)
    bases = fma64(vectors - within, step, start)
    values[: len(vectors)] = fma64(within, step, rounded(bases, dtype).astype(np.float64))
    return rounded(values, dtype)


def rounded(values: Array, dtype: dtype) -> Array:
    """As ``dtype``; 16 bits are reached through float32."""
    return values.astype(dtype.compute, copy=False).astype(dtype.np, copy=False)


ARANGE = opaque(
    "arange", _arange_eval, lambda start, step, *, count, dtype: tensor_type((count,), dtype),
    NONDIFFERENTIABLE, upcast=False,
    emit=numpy_evaluates("evaluated once, when constants are folded"), autocast=AutocastPolicy.KEEP,
    doc="Numbers at equal steps.",
)  # fmt: skip


@late_bound
@expose(method=False, out=False)
@quick_array
@placed
def arange(
    start: object = 0, end: object = None, step: object = 1, *, out: Tensor | None = None,
    dtype: DtypeLike = None, device: DeviceLike = None, layout: LayoutLike = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Numbers from ``start`` up to, but not including, ``end``."""
    check_place(device)
    if end is None:
        start, end = 0, start
    bounds = tuple(as_number(v) for v in (start, end, step))
    if dtype is not None or out is not None:
        target = chosen_dtype(dtype, out)
    elif all(isinstance(v, int) for v in bounds):
        target = dtypes.int64
    else:
        target = dtypes.get_default_dtype()
    if target is dtypes.bool_ or target.is_complex:
        raise NotImplementedError(f"\"arange_cpu\" not implemented for '{target.name}'")
    if target is dtypes.int64 and all(math.isfinite(v) for v in bounds):
        if bounds[2] and not int(bounds[2]):
            raise ValueError("step must be nonzero")  # a fraction, rounded to an integer
        bounds = tuple(int(v) for v in bounds)
    count = _count(*bounds)
    made = bind(ARANGE, bounds[0], bounds[2], count=count, dtype=target)
    return deliver("arange", made, out, requires_grad)


def _count(start: float, end: float, step: float) -> int:
    """How many steps lie before the end."""
    _check_bounds(start, end, step)
    if all(isinstance(v, int) for v in (start, end, step)):
        return int(-((start - end) // step))
    return math.ceil((end - start) / step)


def _check_bounds(start: Any, end: Any, step: object) -> None:
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if (end - start) / step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")


@expose(method=False, out=False)
def range(
    start: Any = 0, end: Any = None, step: object = 1, *, out: Tensor | None = None,
    dtype: DtypeLike = None, device: DeviceLike = None, layout: LayoutLike = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Numbers from ``start`` to ``end`` inclusive; ``arange`` is the one to use."""
    warnings.warn(
        "range is deprecated and will be removed in a future release because its behavior is "
        "inconsistent with Python's range builtin. Instead, use arange, which produces values in "
        "[start, end).",
        UserWarning,
        stacklevel=2,
    )
    check_place(device)
    if end is None:
        start, end = 0, start
    start, end, step = (as_number(v) for v in (start, end, step))
    _check_bounds(start, end, step)
    count = int((end - start) / step) + 1
    made = bind(ARANGE, start, step, count=count, dtype=chosen_dtype(dtype, out))
    return deliver("range", made, out, requires_grad)
