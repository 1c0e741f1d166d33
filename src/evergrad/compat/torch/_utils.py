"""Private helpers of PyTorch that packages call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from evergrad.core.device import Device
from evergrad.core.dtypes import dtype
from evergrad.core.tensor import Tensor
from evergrad.nn.parameter import Parameter
from evergrad.ops.surface.public import FUNCTIONS

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike


def _flatten_dense_tensors(tensors: Iterable[Tensor]) -> Tensor:
    """All elements in one row."""
    flat: Tensor = FUNCTIONS["cat"]([tensor.reshape(-1) for tensor in tensors])
    return flat


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Views of a row with the shapes of ``tensors``, one after the other."""
    parts = flat.split([tensor.numel() for tensor in tensors])
    return tuple(p.view(t.shape) for p, t in zip(parts, tensors, strict=True))


def _take_tensors(tensors: Iterable[Tensor], size_limit: int) -> object:
    """The tensors in groups of one element type and at most ``size_limit`` bytes."""
    groups: dict[dtype, list[Tensor]] = {}
    for tensor in tensors:
        group = groups.setdefault(tensor.dtype, [])
        if group and sum(t.nbytes for t in group) + tensor.nbytes > size_limit:
            yield groups[tensor.dtype]
            groups[tensor.dtype] = group = []
        group.append(tensor)
    yield from groups.values()


def _get_device_index(device: DeviceLike, optional: bool = False, allow_cpu: bool = False) -> int:
    found = Device(device) if isinstance(device, str) else device
    if isinstance(found, int):
        return found
    if isinstance(found, Device) and found.index is not None:
        return int(found.index)
    return -1


def _element_size(dtype: dtype) -> int:
    return dtype.itemsize


def _rebuild_parameter(data: Tensor, requires_grad: bool, backward_hooks: object) -> Parameter:
    return Parameter(data, requires_grad)


def _rebuild_tensor_v2(
    storage: Any, storage_offset: int, size: object, stride: object, requires_grad: bool,
    backward_hooks: object, metadata: object = None,
) -> Tensor:  # fmt: skip
    made: Tensor = storage._tensor().as_strided(size, stride, storage_offset)
    return made.requires_grad_(requires_grad)


class ExceptionWrapper:
    """An exception of another thread, to be raised again in this one."""

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        self.error = exc_info[1] if exc_info else None
        self.where = where

    def reraise(self) -> None:
        if self.error is not None:
            raise self.error
