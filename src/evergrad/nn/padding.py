"""Padding layers: constant, reflected, replicated and circular edges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evergrad.core.tensor import Tensor
from evergrad.nn import functional as F
from evergrad.nn.module import TensorModule

if TYPE_CHECKING:
    from evergrad.core.types import Ints


class _Pad(TensorModule):
    """Adds to each side of the last ``dimensions`` dimensions."""

    dimensions = 0
    mode = ""

    def __init__(self, padding: Ints) -> None:
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

    def __init__(self, padding: Ints, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroPad(_ConstantPad):
    def __init__(self, padding: Ints) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ConstantPad1d(_ConstantPad):
    """One number around the last dimension.

    Args:
        padding: (left, right), or one number for all sides
        value: the number that is added

    Input (N, C, W) or (C, W).

    >>> nn.ConstantPad1d((1, 0), 7.0)(eg.tensor([[1.0, 2.0, 3.0]]))
    tensor([[7., 1., 2., 3.]])
    """

    dimensions = 1


class ConstantPad2d(_ConstantPad):
    """One number around the last two dimensions.

    Args:
        padding: (left, right, top, bottom), or one number for all sides
        value: the number that is added

    Input (N, C, H, W) or (C, H, W).

    >>> nn.ConstantPad2d((1, 0, 0, 0), 7.0)(eg.arange(4.0).view(1, 2, 2))
    tensor([[[7., 0., 1.],
             [7., 2., 3.]]])
    """

    dimensions = 2


class ConstantPad3d(_ConstantPad):
    """One number around the last three dimensions.

    Args:
        padding: (left, right, top, bottom, front, back), or one number for all sides
        value: the number that is added

    Input (N, C, D, H, W) or (C, D, H, W).

    >>> nn.ConstantPad3d(1, 7.0)(eg.ones(1, 2, 2, 2)).shape
    evergrad.Size([1, 4, 4, 4])
    """

    dimensions = 3


class ZeroPad1d(_ZeroPad):
    """Zeros around the last dimension.

    Args:
        padding: (left, right), or one number for all sides

    Input (N, C, W) or (C, W).

    >>> nn.ZeroPad1d((1, 0))(eg.tensor([[1.0, 2.0, 3.0]]))
    tensor([[0., 1., 2., 3.]])
    """

    dimensions = 1


class ZeroPad2d(_ZeroPad):
    """Zeros around the last two dimensions."""

    dimensions = 2


class ZeroPad3d(_ZeroPad):
    """Zeros around the last three dimensions.

    Args:
        padding: (left, right, top, bottom, front, back), or one number for all sides

    Input (N, C, D, H, W) or (C, D, H, W).

    >>> nn.ZeroPad3d(1)(eg.ones(1, 2, 2, 2)).shape
    evergrad.Size([1, 4, 4, 4])
    """

    dimensions = 3


class ReflectionPad1d(_Pad):
    """The inside mirrored at the edges of the last dimension.

    Args:
        padding: (left, right), or one number for all sides

    Input (N, C, W) or (C, W).

    >>> nn.ReflectionPad1d((1, 0))(eg.tensor([[1.0, 2.0, 3.0]]))
    tensor([[2., 1., 2., 3.]])
    """

    dimensions: int = 1
    mode: str = "reflect"


class ReflectionPad2d(_Pad):
    """The inside mirrored at the edges of the last two dimensions.

    Args:
        padding: (left, right, top, bottom), or one number for all sides

    Input (N, C, H, W) or (C, H, W).

    >>> nn.ReflectionPad2d((1, 0, 0, 0))(eg.arange(4.0).view(1, 2, 2))
    tensor([[[1., 0., 1.],
             [3., 2., 3.]]])
    """

    dimensions: int = 2
    mode: str = "reflect"


class ReflectionPad3d(_Pad):
    """The inside mirrored at the edges of the last three dimensions.

    Args:
        padding: (left, right, top, bottom, front, back), or one number for all sides

    Input (N, C, D, H, W) or (C, D, H, W).

    >>> nn.ReflectionPad3d(1)(eg.ones(1, 2, 2, 2)).shape
    evergrad.Size([1, 4, 4, 4])
    """

    dimensions: int = 3
    mode: str = "reflect"


class ReplicationPad1d(_Pad):
    """The edge repeated outside the last dimension.

    Args:
        padding: (left, right), or one number for all sides

    Input (N, C, W) or (C, W).

    >>> nn.ReplicationPad1d((1, 0))(eg.tensor([[1.0, 2.0, 3.0]]))
    tensor([[1., 1., 2., 3.]])
    """

    dimensions: int = 1
    mode: str = "replicate"


class ReplicationPad2d(_Pad):
    """The edge repeated outside the last two dimensions.

    Args:
        padding: (left, right, top, bottom), or one number for all sides

    Input (N, C, H, W) or (C, H, W).

    >>> nn.ReplicationPad2d((1, 0, 0, 0))(eg.arange(4.0).view(1, 2, 2))
    tensor([[[0., 0., 1.],
             [2., 2., 3.]]])
    """

    dimensions: int = 2
    mode: str = "replicate"


class ReplicationPad3d(_Pad):
    """The edge repeated outside the last three dimensions.

    Args:
        padding: (left, right, top, bottom, front, back), or one number for all sides

    Input (N, C, D, H, W) or (C, D, H, W).

    >>> nn.ReplicationPad3d(1)(eg.ones(1, 2, 2, 2)).shape
    evergrad.Size([1, 4, 4, 4])
    """

    dimensions: int = 3
    mode: str = "replicate"


class CircularPad1d(_Pad):
    """The last dimension continued from its other end.

    Args:
        padding: (left, right), or one number for all sides

    Input (N, C, W) or (C, W).

    >>> nn.CircularPad1d((2, 0))(eg.tensor([[1.0, 2.0, 3.0]]))
    tensor([[2., 3., 1., 2., 3.]])
    """

    dimensions: int = 1
    mode: str = "circular"


class CircularPad2d(_Pad):
    """The last two dimensions continued from their other ends.

    Args:
        padding: (left, right, top, bottom), or one number for all sides

    Input (N, C, H, W) or (C, H, W).

    >>> nn.CircularPad2d((1, 0, 0, 0))(eg.arange(4.0).view(1, 2, 2))
    tensor([[[1., 0., 1.],
             [3., 2., 3.]]])
    """

    dimensions: int = 2
    mode: str = "circular"


class CircularPad3d(_Pad):
    """The last three dimensions continued from their other ends.

    Args:
        padding: (left, right, top, bottom, front, back), or one number for all sides

    Input (N, C, D, H, W) or (C, D, H, W).

    >>> nn.CircularPad3d(1)(eg.ones(1, 2, 2, 2)).shape
    evergrad.Size([1, 4, 4, 4])
    """

    dimensions: int = 3
    mode: str = "circular"
