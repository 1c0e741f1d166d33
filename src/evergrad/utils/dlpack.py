"""DLPack, under the path PyTorch's programs import it from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evergrad.core.tensor import Tensor
from evergrad.ops.surface.public import FUNCTIONS

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction

from_dlpack: AnyFunction = FUNCTIONS["from_dlpack"]


def to_dlpack(tensor: Tensor) -> Any:
    """A capsule around the tensor's memory."""
    return tensor.__dlpack__()


__all__ = ["from_dlpack", "to_dlpack"]
