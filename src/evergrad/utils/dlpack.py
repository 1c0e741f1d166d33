"""DLPack, under the path PyTorch's programs import it from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evergrad.core.tensor import Tensor
from evergrad.ops.surface.public import FUNCTIONS

from_dlpack: Callable[..., Any] = FUNCTIONS["from_dlpack"]


def to_dlpack(tensor: Tensor) -> Any:
    """A capsule around the tensor's memory."""
    return tensor.__dlpack__()


__all__ = ["from_dlpack", "to_dlpack"]
