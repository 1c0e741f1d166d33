"""Layers that rearrange or resize: flatten, fold, shuffle, upsample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evergrad.core.tensor import Tensor
from evergrad.nn import functional as F
from evergrad.nn.module import TensorModule

if TYPE_CHECKING:
    from evergrad.core.types import Ints


class Flatten(TensorModule):
    """Dimensions put together; by default all but the batch."""

    end_dim: int
    start_dim: int

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(TensorModule):
    """One dimension split into several."""

    def __init__(self, dim: int, unflattened_size: Any) -> None:
        super().__init__()
        self.dim = dim
        self.unflattened_size = unflattened_size

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class Fold(TensorModule):
    """Windows added up into an image.

    The transpose of :class:`Unfold`: (N, C * kernel elements, windows) becomes (N, C, H, W).

    Args:
        output_size: extents (H, W) of the image
        kernel_size: extents of the windows
        dilation: distance of the elements of a window; default 1
        padding: border that is cut off; default 0
        stride: distance of the windows; default 1

    >>> columns = nn.Unfold(2)(eg.ones(1, 1, 3, 3))
    >>> nn.Fold((3, 3), 2)(columns)[0, 0]
    tensor([[1., 2., 1.],
            [2., 4., 2.],
            [1., 2., 1.]])
    """

    def __init__(
        self, output_size: Ints, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0,
        stride: Ints = 1,
    ) -> None:  # fmt: skip
        super().__init__()
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        return F.fold(
            input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride
        )

    def extra_repr(self) -> str:
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, "
            f"dilation={self.dilation}, padding={self.padding}, stride={self.stride}"
        )


class Unfold(TensorModule):
    """The windows of an image as columns.

    (N, C, H, W) becomes (N, C * kernel elements, windows).

    Args:
        kernel_size: extents of the windows
        dilation: distance of the elements of a window; default 1
        padding: border of zeros; default 0
        stride: distance of the windows; default 1

    >>> nn.Unfold(2)(eg.arange(6.0).view(1, 1, 2, 3))
    tensor([[[0., 1.],
             [1., 2.],
             [3., 4.],
             [4., 5.]]])
    """

    def __init__(
        self, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, "
            f"stride={self.stride}"
        )


class PixelShuffle(TensorModule):
    """Channels laid out as finer pixels."""

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(TensorModule):
    """Pixels gathered into channels.

    Args:
        downscale_factor: r

    (N, C, H r, W r) becomes (N, C r r, H, W): the inverse of :class:`PixelShuffle`.

    >>> nn.PixelUnshuffle(2)(eg.ones(1, 1, 4, 6)).shape
    evergrad.Size([1, 4, 2, 3])
    """

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(TensorModule):
    """Channels of several groups interleaved.

    Args:
        groups: number of groups, a divisor of the channels of (N, C, *)

    >>> nn.ChannelShuffle(2)(eg.arange(4).view(1, 4, 1)).flatten()
    tensor([0, 2, 1, 3])
    """

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"


class Upsample(TensorModule):
    """A larger (or smaller) version of an image, sequence or volume."""

    def __init__(
        self, size: Ints | None = None, scale_factor: Any = None, mode: str = "nearest",
        align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.size = size
        if isinstance(scale_factor, tuple):
            self.scale_factor: Any = tuple(float(f) for f in scale_factor)
        else:
            self.scale_factor = float(scale_factor) if scale_factor else None
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.interpolate(
            input, self.size, self.scale_factor, self.mode, self.align_corners,
            self.recompute_scale_factor,
        )  # fmt: skip

    def extra_repr(self) -> str:
        what = (
            f"scale_factor={self.scale_factor!r}"
            if self.scale_factor is not None
            else f"size={self.size!r}"
        )
        return f"{what}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Upsampling that repeats pixels.

    Args:
        size: extents (H, W) of the result, or
        scale_factor: what the input's are multiplied by

    >>> nn.UpsamplingNearest2d(scale_factor=2)(eg.tensor([[[[0.0, 1.0]]]]))
    tensor([[[[0., 0., 1., 1.],
              [0., 0., 1., 1.]]]])
    """

    def __init__(self, size: Ints | None = None, scale_factor: object = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """Upsampling that interpolates between pixels.

    Args:
        size: extents (H, W) of the result, or
        scale_factor: what the input's are multiplied by

    Corners stay at corners (``align_corners=True``).

    >>> nn.UpsamplingBilinear2d(size=(1, 3))(eg.tensor([[[[0.0, 1.0]]]]))
    tensor([[[[0.0000, 0.5000, 1.0000]]]])
    """

    def __init__(self, size: Ints | None = None, scale_factor: object = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)
