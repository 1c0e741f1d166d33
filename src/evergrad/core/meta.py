"""Tensors of the device ``meta``: a shape and an element type, and no memory.

An op on one applies the row's type rule and nothing else. Writing to one changes nothing. Functions
that make tensors are decorated with :func:`placed`: with ``device="meta"``, or inside of
``with device("meta")``, they give these.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np

from evergrad.core.compound import Compound, CompoundType, without_array
from evergrad.core.device import META, Device, check_device, context_device
from evergrad.core.dtypes import dtype, get_default_dtype
from evergrad.core.memory_format import strided
from evergrad.core.op import Op
from evergrad.core.shapes import contiguous_strides, tensor_type
from evergrad.core.tensor import Array, Tensor
from evergrad.core.tracing import tracing

if TYPE_CHECKING:
    from evergrad.core.types import MemoryFormatLike
    from evergrad.sparse.compressed import CompressedTensor

F = TypeVar("F", bound=Callable[..., Any])


class MetaTensor(Compound):
    """A tensor without elements."""

    __slots__ = ()

    backend = layout_name = "Meta"
    layout = strided
    is_meta = True
    is_cpu = False

    @property
    def device(self) -> Device:
        return META

    def bind_row(self, op: Op, args: tuple[object, ...], attrs: dict[str, object]) -> object:
        types = tuple(
            [tensor_type(a.shape, a.dtype) if isinstance(a, Tensor) else type(a) for a in args]
        )
        key = (types, tuple(attrs.items())) if attrs else types
        found = op.specializations.get(key) or op.resolve(key, types, attrs)
        made = tuple([meta_tensor(t.shape, t.dtype) for t in found.out_types])
        return made[0] if found.single else made

    def filled(self, value: object, dtype: dtype) -> Tensor:
        return meta_tensor(self._type.shape, dtype)

    def mapped(self, name: str, function: Callable[[Tensor], Tensor]) -> Tensor:
        return self

    def take_over(self, result: Tensor) -> Tensor:
        self._storage.version += 1
        return self

    def parts(self) -> tuple[Tensor, ...]:
        return ()

    def stride(self, dim: int | None = None) -> Any:
        strides = contiguous_strides(self._type.shape)
        return strides if dim is None else strides[dim]

    def storage_offset(self) -> int:
        return 0

    def is_contiguous(self, memory_format: MemoryFormatLike = None) -> bool:
        return True

    def contiguous(self, memory_format: MemoryFormatLike = None) -> Tensor:
        return self

    def detach(self) -> Tensor:
        return meta_tensor(self._type.shape, self._type.dtype)

    @property  # type: ignore[misc]
    def data(self) -> Tensor:
        """The same shape and type, detached from the graph."""
        return self.detach()

    def data_ptr(self) -> int:  # type: ignore[override]
        return 0

    def layout_array(self) -> Array:  # type: ignore[override]
        """An array with contiguous strides over a single element: never to be read."""
        kind = self._type.dtype.np
        strides = [step * kind.itemsize for step in contiguous_strides(self._type.shape)]
        one = np.zeros(1, kind)
        return np.lib.stride_tricks.as_strided(one, self._type.shape, strides, writeable=False)

    def array(self) -> NoReturn:
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")

    def to(self, *args: object, **kwargs: object) -> Tensor:
        """Another element type; the elements cannot be moved to another device."""
        places = [a for a in (*args, kwargs.get("device")) if isinstance(a, (str, Device))]
        if any(check_device(place).type != "meta" for place in places):
            raise NotImplementedError(
                "Cannot copy out of meta tensor; no data! Please use "
                "evergrad.nn.Module.to_empty() instead of evergrad.nn.Module.to() when moving "
                "module from meta to a different device."
            )
        kinds = [a for a in (*args, kwargs.get("dtype")) if isinstance(a, dtype)]
        return meta_tensor(self._type.shape, kinds[0]) if kinds else self

    def cpu(self) -> Tensor:  # type: ignore[override]
        return self.to("cpu")

    def __repr__(self) -> str:
        shape = tuple(self._type.shape)
        kind = "" if self.dtype is get_default_dtype() else f", dtype={self.dtype}"
        return f"tensor(..., device='meta', size={shape}{kind})"

    def __deepcopy__(self, memo: dict[int, object]) -> Any:
        made = meta_tensor(self._type.shape, self._type.dtype, type(self))
        made.__dict__.update(self.__dict__)
        memo[id(self)] = made
        return made.requires_grad_(self.requires_grad)

    def __reduce_ex__(self, protocol: object) -> Any:
        return meta_tensor, (tuple(self._type.shape), self._type.dtype, type(self))


def meta_tensor(shape: Any, dtype: dtype, cls: type[MetaTensor] = MetaTensor) -> MetaTensor:
    """A tensor of the device ``meta``."""
    made: MetaTensor = without_array(cls, CompoundType(tuple(shape), dtype))
    return made


def ignore_writes() -> None:
    """Let the in-place methods that tensors have by now leave meta tensors as they are."""

    def unchanged(name: str) -> Callable[..., Tensor]:
        def method(self: MetaTensor, *args: object, **kwargs: object) -> Tensor:
            self._storage.version += 1
            return self

        method.__name__ = method.__qualname__ = name
        return method

    for name in dir(Tensor):
        writes = name.endswith("_") and name not in ("requires_grad_", "detach_")
        if writes and not name.startswith("_") and name not in vars(MetaTensor):
            setattr(MetaTensor, name, unchanged(name))


def placed(function: F, like: bool = False) -> F:
    """A function that makes tensors, on the device that is named or chosen by ``with``; one that
    makes them ``like`` another tensor keeps that tensor's device."""

    @functools.wraps(function)
    def make(*args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        if device is None and not like:
            device = context_device()
        if device is None or check_device(device).type != "meta":
            result: CompressedTensor | Tensor | None = function(*args, **kwargs)
            return result
        with tracing():
            made = function(*args, **{**kwargs, "device": "cpu", "requires_grad": False})
            found = meta_tensor(made._type.shape, made._type.dtype)
        return found.requires_grad_() if kwargs.get("requires_grad") else found

    return make  # type: ignore[return-value]
