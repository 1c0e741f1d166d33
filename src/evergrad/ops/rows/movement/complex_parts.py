"""Complex numbers as pairs of real ones, and their parts: all views."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.autocast import autocast_policy
from evergrad.core.bind import bind, cast
from evergrad.core.families import linear
from evergrad.core.namespace import late_bound, ops
from evergrad.core.op import Op
from evergrad.core.row_facts import AutocastPolicy
from evergrad.core.shapes import TensorType, tensor_type
from evergrad.core.tensor import Tensor
from evergrad.core.types import Array
from evergrad.ops.rows.movement.views import Dims, contiguous, to_front
from evergrad.ops.surface.public import expose


def _batch_front(op: Op, args: Sequence[Tensor], dims: Dims, **attrs: object) -> tuple[Tensor, int]:
    return bind(op, to_front(args[0], dims[0]), **attrs), 0  # type: ignore[arg-type]


VIEW_AS_REAL = linear(
    "view_as_real",
    lambda z: np.lib.stride_tricks.as_strided(z.real, (*z.shape, 2), (*z.strides, z.itemsize // 2)),
    lambda z: tensor_type((*z.shape, 2), z.dtype.to_real()),
    lambda g, z: _joined(g),
    batch=_batch_front, alias="view", doc="Complex numbers as pairs of real ones.",
)  # fmt: skip
VIEW_AS_COMPLEX: Op = linear(
    "view_as_complex", lambda x: _pairs_as_complex(x),
    lambda x: tensor_type(x.shape[:-1], x.dtype.to_complex()),
    lambda g, x: bind(VIEW_AS_REAL, g),
    batch=lambda op, args, dims: (bind(op, contiguous(to_front(args[0], dims[0]))), 0),
    alias="view", doc="Pairs of real numbers as complex ones.",
)  # fmt: skip


def _joined(g: Tensor) -> Tensor:
    """Pairs as complex numbers; a copy, since an expanded cotangent has no view as such."""
    return ops.complex(ops.select(g, -1, 0), ops.select(g, -1, 1))


def _pairs_as_complex(x: Array) -> Array:
    kind = np.dtype(np.complex64 if x.dtype == np.float32 else np.complex128)
    if 0 in x.shape:
        return np.zeros(x.shape[:-1], kind)
    if x.strides[-1] != x.itemsize:  # a cotangent; what users give has been checked
        x = np.ascontiguousarray(x)
    return x.view(kind).reshape(x.shape[:-1], copy=False)


@late_bound
@expose(method=False, out=False)
def view_as_real(input: Tensor) -> Tensor:
    """Complex numbers as a last dimension of (real, imaginary)."""
    if not input.dtype.is_complex:
        raise RuntimeError("view_as_real is only supported for complex tensors")
    return bind(VIEW_AS_REAL, input)  # type: ignore[no-any-return]


@expose(method=False, out=False)
@autocast_policy(AutocastPolicy.FLOAT32)
def view_as_complex(input: Tensor) -> Tensor:
    """A last dimension of (real, imaginary) as complex numbers."""
    if input.dtype not in (dtypes.float32, dtypes.float64):
        raise RuntimeError(
            f"view_as_complex is only supported for floating point tensors, but got a tensor of "
            f"scalar type: {input.dtype.name}"
        )
    if not input.ndim or input._type.shape[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2")
    if input.layout_array().strides[-1] != input.itemsize:
        raise RuntimeError("Tensor must have a last dimension with stride 1")
    return bind(VIEW_AS_COMPLEX, input)  # type: ignore[no-any-return]


def _part_type(z: TensorType) -> TensorType:
    return tensor_type(z.shape, z.dtype.to_real())


REAL = linear("real", lambda z: z.real, _part_type, lambda g, z: cast(g, z.dtype),
              batch=_batch_front, alias="view", doc="The real part.")  # fmt: skip
IMAG = linear("imag", lambda z: z.imag, _part_type, lambda g, z: cast(g, z.dtype) * 1j,
              batch=_batch_front, alias="view", doc="The imaginary part.")  # fmt: skip


@expose(method=False, out=False)
def real(input: Tensor) -> Tensor:
    """The real part as a view; real tensors as they are."""
    return bind(REAL, input) if input.dtype.is_complex else input


@expose(method=False, out=False)
def imag(input: Tensor) -> Tensor:
    """The imaginary part as a view."""
    if not input.dtype.is_complex:
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    return bind(IMAG, input)  # type: ignore[no-any-return]


def _set_part(part: Callable[[Tensor], Tensor]) -> Callable[[Tensor, object], None]:
    def write(self: Tensor, value: Any) -> None:
        part(self).copy_(value)

    return write


setattr(Tensor, "real", property(real, _set_part(real)))  # noqa: B010 - declared in a stub
setattr(Tensor, "imag", property(imag, _set_part(imag)))  # noqa: B010 - declared in a stub
