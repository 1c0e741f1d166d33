"""Tensors put together from others: complex numbers from their parts, columns of powers."""

from __future__ import annotations

import numpy as np

from evergrad.core import dtypes
from evergrad.core.autocast import autocast_policy
from evergrad.core.bind import bind, cast
from evergrad.core.families import batch_elementwise, linear
from evergrad.core.namespace import late_bound
from evergrad.core.row_facts import AutocastPolicy, lowered
from evergrad.core.shapes import TensorType, broadcast_shapes, tensor_type
from evergrad.core.tensor import Array, Tensor
from evergrad.ops.rows.creation.constants import ones, ones_like
from evergrad.ops.rows.elementwise.trigonometry import cos, sin
from evergrad.ops.rows.movement.complex_parts import imag, real
from evergrad.ops.rows.movement.joining import cat
from evergrad.ops.rows.movement.rearrange import flip
from evergrad.ops.rows.movement.views import expand, sum_to_type, unsqueeze
from evergrad.ops.rows.reduce.scan import cumprod
from evergrad.ops.surface.public import expose


def _complex_type(real: TensorType, imag: TensorType) -> TensorType:
    kinds = (dtypes.float32, dtypes.float64)
    if real.dtype not in kinds or imag.dtype not in kinds:
        raise RuntimeError(
            "Expected both inputs to be Float or Double tensors but got "
            f"{real.dtype.name} and {imag.dtype.name}"
        )
    if real.dtype is not imag.dtype:
        raise RuntimeError(
            f"Expected object of scalar type {real.dtype.name} but got scalar type "
            f"{imag.dtype.name} for second argument"
        )
    return tensor_type(broadcast_shapes(real.shape, imag.shape), real.dtype.to_complex())


def _complex_eval(real: Array, imag: Array) -> Array:
    kind = np.complex64 if real.dtype == np.float32 else np.complex128
    out = np.empty(np.broadcast_shapes(real.shape, imag.shape), kind)
    out.real = real
    out.imag = imag
    return out


def _complex_transpose(g: Tensor, re: Tensor, im: Tensor) -> tuple[Tensor, Tensor]:
    return sum_to_type(real(g), re._type), sum_to_type(imag(g), im._type)


COMPLEX = linear("complex", _complex_eval, _complex_type, _complex_transpose,
                 batch=batch_elementwise,
                 emit=lowered("passes.split_complex"), autocast=AutocastPolicy.KEEP,
                 doc="Complex numbers from their parts.")  # fmt: skip


@late_bound
@expose(method=False)
def complex(real: Tensor, imag: Tensor) -> Tensor:
    """Complex numbers from their real and imaginary parts."""
    return bind(COMPLEX, real, imag)  # type: ignore[no-any-return]


@expose(method=False)
@autocast_policy(AutocastPolicy.FLOAT32)
def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """Complex numbers from their absolute values and angles."""
    _complex_type(abs._type, angle._type)
    return complex(abs * cos(angle), abs * sin(angle))


@expose(method=False, out=False)
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """The powers of a vector as columns, from the highest to the zeroth."""
    if x.ndim != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    count = x._type.shape[0] if N is None else N
    if count < 0:
        raise RuntimeError("N must be non-negative.")
    target = x.dtype if x.dtype.category >= dtypes.FLOATING else dtypes.int64
    column = unsqueeze(cast(x, target), 1)
    if count < 2:
        return ones((x._type.shape[0], count), dtype=target)
    repeated = expand(column, (-1, count - 1))
    powers = cat([ones_like(column), cumprod(repeated, 1)], 1)
    return powers if increasing else flip(powers, (1,))
