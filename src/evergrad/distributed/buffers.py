"""Tensors as contiguous arrays for communication, and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evergrad.core.shapes import TensorType
from evergrad.core.state import STATE
from evergrad.core.tensor import Tensor
from evergrad.core.types import Array as Array
from evergrad.errors import TraceError


def is_traced() -> bool:
    """Whether ops are being traced, so that a collective becomes an equation."""
    return STATE.get().trace is not None


def array_of(tensor: object, name: str = "tensor") -> Array:
    """The elements of a tensor: itself where it is contiguous, else a copy."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a Tensor, not {type(tensor).__name__}")
    if is_traced():
        raise TraceError(
            "this collective has no form for compiled functions; inside of them use all_reduce, "
            "all_gather, reduce_scatter_tensor, broadcast, reduce, all_to_all_single or "
            "evergrad.distributed.nn.functional"
        )
    return np.ascontiguousarray(tensor.array()).reshape(tensor._type.shape)


def store(tensor: Tensor, array: Array) -> None:
    """Write what was received to a tensor, unless it was received in place."""
    target = tensor._value
    if not np.may_share_memory(target, array):
        np.copyto(target, array.reshape(target.shape))
    tensor._storage.version += 1


def stacked(tensors: Sequence[Tensor], name: str) -> Array:
    """Tensors of equal type as the rows of one array."""
    check_equal(tensors, tensors[0]._type, name)
    return np.stack([array_of(t, name) for t in tensors])


def check_equal(tensors: Sequence[object], type: TensorType, name: str) -> None:
    """Refuse a list whose entries differ in shape or element type from what is sent."""
    for number, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name}[{number}] must be a Tensor")
        found = tensor._type
        if found.dtype is not type.dtype or found.numel != type.numel:
            raise ValueError(
                f"{name}[{number}] is {found}, but every rank sends {type}: all entries need its "
                "dtype and number of elements"
            )


def check_count(values: Sequence[object], size: int, name: str) -> None:
    """Refuse a list that has not one entry for each rank."""
    if len(values) != size:
        of = "the world has one process" if size == 1 else f"the group has {size} processes"
        raise RuntimeError(f"{name} has {len(values)} entries, but {of}")
