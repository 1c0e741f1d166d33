"""Pickles that PyTorch reads: tensors are written under its names, and their bytes apart."""

from __future__ import annotations

import codecs
import io
import pickle
from collections import OrderedDict
from typing import Any

from evergrad.core.memory_format import layout
from evergrad.core.shapes import Size
from evergrad.core.tensor import Device, Tensor, detached
from evergrad.io import rebuild
from evergrad.io.names import TORCH_NAMES
from evergrad.io.regions import Region, Regions
from evergrad.io.sparse_parts import LAYOUTS, SparseMaker, parts_of
from evergrad.nn.parameter import Buffer, Parameter
from evergrad.ops.surface.handles import UntypedStorage

_WAYS_TO_REDUCE = (Tensor.__reduce_ex__, Parameter.__reduce_ex__)


def pickled(obj: Any, protocol: int, *, legacy: bool) -> tuple[bytes, Regions]:
    """An object as a pickle, and the regions of storages it refers to."""
    regions = Regions()
    _Surveyor(regions, protocol).dump(obj)
    file = io.BytesIO()
    _Writer(file, protocol, regions, legacy).dump(obj)
    return file.getvalue(), regions


def _is_written_here(obj: Any) -> bool:
    """Whether a tensor is written as PyTorch does, not as its class asks for."""
    if not isinstance(obj, Tensor):
        return False
    return type(obj).__reduce_ex__ in _WAYS_TO_REDUCE or _is_sparse(obj)


class _Surveyor(pickle.Pickler):
    """Walks through an object as if to pickle it, and notices its tensors."""

    def __init__(self, regions: Regions, protocol: int) -> None:
        super().__init__(io.BytesIO(), protocol)
        self._regions = regions

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, UntypedStorage):
            raise TypeError("storages cannot be saved by themselves; save a tensor on them")
        if not _is_written_here(obj):
            return NotImplemented
        if _is_sparse(obj):
            return tuple, (parts_of(obj),)
        self._regions.notice(obj)
        return dict, (), obj.__dict__ or None


class _Writer(pickle._Pickler):
    """Pickles objects; what PyTorch knows gets PyTorch's name.

    It is Python's own pickler in Python, because the one in C looks every name up in the module it
    claims to be from, and PyTorch need not be there.
    """

    def __init__(self, file: Any, protocol: int, regions: Regions, legacy: bool) -> None:
        super().__init__(file, protocol)
        self._regions = regions
        self._legacy = legacy
        self._is_old = protocol < 3  # has no instruction for bytes

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, Region):
            return None
        identity = ("storage", obj.kind, obj.key, "cpu", obj.numel)
        return (*identity, None) if self._legacy else identity

    def reducer_override(self, obj: Any) -> Any:
        if id(obj) in TORCH_NAMES:
            return TORCH_NAMES[id(obj)]
        if type(obj) is bytes and not obj and self._is_old:
            return codecs.encode, ("", "latin1")  # as all other bytes, so that PyTorch takes them
        if type(obj) is Size:
            return Size, (tuple(obj),)
        if type(obj) is Device:
            return Device, (obj.type,)
        if isinstance(obj, layout):
            return rebuild.layout_named, (f"torch.{obj.name}",)
        return self._reduced(obj) if _is_written_here(obj) else NotImplemented

    def _reduced(self, tensor: Tensor) -> Any:
        """A tensor as the call that makes it again."""
        state = dict(tensor.__dict__)
        hooks: OrderedDict[Any, Any] = OrderedDict()
        if type(tensor) is Parameter:
            args = (detached(tensor), tensor.requires_grad, hooks)
            return (
                (rebuild.parameter_with_state, (*args, state))
                if state
                else (rebuild.parameter, args)
            )
        function, args = self._reduced_elements(tensor, hooks)
        if type(tensor) is Buffer:
            state["_is_buffer"] = True
            return rebuild.from_type, (function, Tensor, args, state)
        if (type(tensor) is Tensor and not state) or _is_sparse(tensor):
            return function, args
        return rebuild.from_type, (function, type(tensor), args, state)

    def _reduced_elements(self, tensor: Tensor, hooks: Any) -> tuple[Any, tuple[Any, ...]]:
        if _is_sparse(tensor):
            return SparseMaker.make, (tensor.layout, parts_of(tensor))
        place = self._regions.place(tensor)
        shape = tuple(tensor.shape)
        flag = tensor.requires_grad
        return rebuild.tensor_v2, (place.region, place.offset, shape, place.strides, flag, hooks)

    def save_global(self, obj: Any, name: str | None = None) -> None:
        """Write a reference by name, which nobody looks up now."""
        path = TORCH_NAMES.get(id(obj))
        if path is None:
            super().save_global(obj, name)  # type: ignore[misc]
            return
        module, _, own_name = f"torch.{path}".rpartition(".")
        self.write(pickle.GLOBAL + f"{module}\n{own_name}\n".encode())  # type: ignore[attr-defined]
        self.memoize(obj)  # type: ignore[attr-defined]


def _is_sparse(tensor: Tensor) -> bool:
    return any(tensor.layout is known for known in LAYOUTS)
