"""Padding layers: constant, reflected, replicated and circular edges."""

from __future__ import annotations

from typing import Any

from evergrad.core.tensor import Tensor
from evergrad.nn import functional as F
from evergrad.nn.module import Module


class _Pad(Module):
    """Adds to each side of the last ``dimensions`` dimensions."""

    dimensions = 0
    mode = ""

    def __init__(self, padding: Any) -> None:
        super().__init__()
        count = 2 * self.dimensions
        self.padding = (padding,) * count if isinstance(padding, int) else tuple(padding)
        if len(self.padding) != count:
            raise ValueError(
                f"{type(self).__name__} takes one number or {count}, got {len(self.padding)}"
            )

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    mode = "constant"

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroPad(_ConstantPad):
    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ConstantPad1d(_ConstantPad):
    """One number around the last dimension."""

    dimensions = 1


class ConstantPad2d(_ConstantPad):
    """One number around the last two dimensions."""

    dimensions = 2


class ConstantPad3d(_ConstantPad):
    """One number around the last three dimensions."""

    dimensions = 3


class ZeroPad1d(_ZeroPad):
    """Zeros around the last dimension."""

    dimensions = 1


class ZeroPad2d(_ZeroPad):
    """Zeros around the last two dimensions."""

    dimensions = 2


class ZeroPad3d(_ZeroPad):
    """Zeros around the last three dimensions."""

    dimensions = 3


class ReflectionPad1d(_Pad):
    """The inside mirrored at the edges of the last dimension."""

    dimensions: int = 1
    mode: str = "reflect"


class ReflectionPad2d(_Pad):
    """The inside mirrored at the edges of the last two dimensions."""

    dimensions: int = 2
    mode: str = "reflect"


class ReflectionPad3d(_Pad):
    """The inside mirrored at the edges of the last three dimensions."""

    dimensions: int = 3
    mode: str = "reflect"


class ReplicationPad1d(_Pad):
    """The edge repeated outside the last dimension."""

    dimensions: int = 1
    mode: str = "replicate"


class ReplicationPad2d(_Pad):
    """The edge repeated outside the last two dimensions."""

    dimensions: int = 2
    mode: str = "replicate"


class ReplicationPad3d(_Pad):
    """The edge repeated outside the last three dimensions."""

    dimensions: int = 3
    mode: str = "replicate"


class CircularPad1d(_Pad):
    """The last dimension continued from its other end."""

    dimensions: int = 1
    mode: str = "circular"


class CircularPad2d(_Pad):
    """The last two dimensions continued from their other ends."""

    dimensions: int = 2
    mode: str = "circular"


class CircularPad3d(_Pad):
    """The last three dimensions continued from their other ends."""

    dimensions: int = 3
    mode: str = "circular"
