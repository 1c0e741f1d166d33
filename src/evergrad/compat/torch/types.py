"""Type aliases of PyTorch's signatures."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import IO, Any

from evergrad.core.device import Device as _device  # noqa: N813 - PyTorch's spelling
from evergrad.core.dtypes import dtype as _dtype
from evergrad.core.memory_format import layout as _layout
from evergrad.core.shapes import Size
from evergrad.core.tensor import Tensor
from evergrad.ops.surface.storages import TypedStorage, UntypedStorage

_bool, _int, _float, _complex = bool, int, float, complex
_size = Size | list[int] | tuple[int, ...]
_TensorOrTensors = Tensor | Sequence[Tensor]
Number = int | float | bool
Device = _device | str | int | None
FileLike = str | os.PathLike[str] | IO[bytes]
Storage = TypedStorage | UntypedStorage
IntLikeType = int
FloatLikeType = float
BoolLikeType = bool
PySymType = Any

__all__ = ["Device", "FileLike", "Number", "Storage", "_device", "_dtype", "_layout", "_size"]
