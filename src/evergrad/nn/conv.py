"""Convolution layers of one to three dimensions, and their transposes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from evergrad.core.tensor import Tensor
from evergrad.nn import functional as F
from evergrad.nn import init
from evergrad.nn.module import TensorModule
from evergrad.nn.parameter import Parameter
from evergrad.ops.rows.creation.constants import empty

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike, DtypeLike, Ints

Numbers = tuple[int, ...]

_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


def spread(value: Any, count: int) -> Numbers:
    """One number for each dimension."""
    return (value,) * count if isinstance(value, int) else tuple(int(v) for v in value)


class _ConvNd(TensorModule):
    """The settings, parameters and text that all convolutions share."""

    dimensions = 0
    transposed = False
    weight: Any
    bias: Any

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Ints, stride: Ints,
        padding: Ints | str, dilation: Ints, output_padding: Ints, groups: int, bias: bool,
        padding_mode: str, device: DeviceLike, dtype: DtypeLike,
    ) -> None:  # fmt: skip
        super().__init__()
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        if in_channels % groups:
            raise ValueError(
                f"in_channels must be divisible by groups, got {in_channels} and {groups}"
            )
        if out_channels % groups:
            raise ValueError(
                f"out_channels must be divisible by groups, got {out_channels} and {groups}"
            )
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise ValueError(
                f"Invalid padding string {padding!r}, should be one of ('same', 'valid')"
            )
        if padding_mode not in _PADDING_MODES:
            raise ValueError(
                f"padding_mode must be one of {_PADDING_MODES}, but got {padding_mode!r}"
            )
        count = self.dimensions
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = spread(kernel_size, count)
        self.stride = spread(stride, count)
        self.padding: Any = padding if isinstance(padding, str) else spread(padding, count)
        self.dilation = spread(dilation, count)
        self.output_padding = spread(output_padding, count)
        self.groups = groups
        self.padding_mode = padding_mode
        if padding == "same" and any(s != 1 for s in self.stride):
            raise ValueError("padding='same' is not supported for strided convolutions")
        channels = (
            (in_channels, out_channels // groups)
            if self.transposed
            else (out_channels, in_channels // groups)
        )
        self.weight = Parameter(empty(*channels, *self.kernel_size, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if not self.weight.numel():
            return
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in:
                init.uniform_(self.bias, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))

    def _edge_padding(self) -> list[int]:
        """How much ``F.pad`` adds on each side, last dimension first."""
        sides: list[int] = []
        for i in reversed(range(self.dimensions)):
            if self.padding == "same":
                total = self.dilation[i] * (self.kernel_size[i] - 1)
                sides += [total // 2, total - total // 2]
            elif self.padding == "valid":
                sides += [0, 0]
            else:
                sides += [self.padding[i], self.padding[i]]
        return sides

    def extra_repr(self) -> str:
        text = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}"
        )
        if self.padding != (0,) * self.dimensions:
            text += f", padding={self.padding}"
        if self.dilation != (1,) * self.dimensions:
            text += f", dilation={self.dilation}"
        if self.output_padding != (0,) * self.dimensions:
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text


class _Convolution(_ConvNd):
    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Ints, stride: Ints = 1,
        padding: Ints | str = 0, dilation: Ints = 1, groups: int = 1, bias: bool = True,
        padding_mode: str = "zeros", device: DeviceLike = None, dtype: DtypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, 0, groups, bias,
            padding_mode, device, dtype,
        )  # fmt: skip

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._edge_padding(), mode=self.padding_mode)
            padding = 0
        function = (F.conv1d, F.conv2d, F.conv3d)[self.dimensions - 1]
        settings = (self.stride, padding, self.dilation, self.groups)
        return function(input, weight, bias, *settings)

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)


class Conv1d(_Convolution):
    """Convolution over sequences: (N, C, L)."""

    dimensions = 1


class Conv2d(_Convolution):
    """Convolution over images: (N, C, H, W)."""

    dimensions = 2


class Conv3d(_Convolution):
    """Convolution over volumes: (N, C, D, H, W)."""

    dimensions = 3


class _ConvTranspose(_ConvNd):
    transposed = True

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Ints, stride: Ints = 1,
        padding: Ints | str = 0, output_padding: Ints = 0, groups: int = 1, bias: bool = True,
        dilation: Ints = 1, padding_mode: str = "zeros", device: DeviceLike = None,
        dtype: DtypeLike = None,
    ) -> None:  # fmt: skip
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, output_padding,
            groups, bias, padding_mode, device, dtype,
        )  # fmt: skip

    def _output_padding(self, input: Tensor, output_size: Any) -> Numbers:
        """What must be added for the result to have the wanted size."""
        if output_size is None:
            return self.output_padding
        count = self.dimensions
        wanted = tuple(output_size)[-count:]
        found = []
        for i in range(count):
            extent = input.shape[i - count]
            smallest = (
                (extent - 1) * self.stride[i] - 2 * self.padding[i]
                + self.dilation[i] * (self.kernel_size[i] - 1) + 1
            )  # fmt: skip
            if not smallest <= wanted[i] < smallest + self.stride[i]:
                raise ValueError(
                    f"requested an output size of {tuple(wanted)}, but valid sizes of dimension "
                    f"{i} range from {smallest} to {smallest + self.stride[i] - 1}"
                )
            found.append(wanted[i] - smallest)
        return tuple(found)

    def forward(self, input: Tensor, output_size: object = None) -> Tensor:
        function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[self.dimensions - 1]
        return function(
            input, self.weight, self.bias, self.stride, self.padding,
            self._output_padding(input, output_size), self.groups, self.dilation,
        )  # fmt: skip


class ConvTranspose1d(_ConvTranspose):
    """The transpose of convolution over sequences."""

    dimensions = 1


class ConvTranspose2d(_ConvTranspose):
    """The transpose of convolution over images."""

    dimensions = 2


class ConvTranspose3d(_ConvTranspose):
    """The transpose of convolution over volumes."""

    dimensions = 3
