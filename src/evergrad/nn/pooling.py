"""Pooling layers of one to three dimensions."""

from __future__ import annotations

from typing import Any

from evergrad.core.tensor import Tensor
from evergrad.nn import functional as F
from evergrad.nn.conv import spread
from evergrad.nn.module import Module


def _per_dimension(name: str, dimensions: int) -> Any:
    """The function of a family for a number of dimensions, found when it is called."""
    return getattr(F, f"{name}{dimensions}d")


class _MaxPool(Module):
    dimensions = 0

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
        return_indices: bool = False, ceil_mode: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Any:
        return _per_dimension("max_pool", self.dimensions)(
            input, self.kernel_size, self.stride, self.padding, self.dilation,
            ceil_mode=self.ceil_mode, return_indices=self.return_indices,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPool):
    """The largest number in each window of (N, C, L)."""

    dimensions = 1


class MaxPool2d(_MaxPool):
    """The largest number in each window of (N, C, H, W)."""

    dimensions = 2


class MaxPool3d(_MaxPool):
    """The largest number in each window of (N, C, D, H, W)."""

    dimensions = 3


class _MaxUnpool(Module):
    dimensions = 0

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        self.kernel_size = spread(kernel_size, self.dimensions)
        self.stride = spread(kernel_size if stride is None else stride, self.dimensions)
        self.padding = spread(padding, self.dimensions)

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return _per_dimension("max_unpool", self.dimensions)(  # type: ignore[no-any-return]
            input, indices, self.kernel_size, self.stride, self.padding, output_size
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """Puts pooled numbers back where they came from, zeros elsewhere."""

    dimensions = 1


class MaxUnpool2d(_MaxUnpool):
    """Puts pooled numbers back where they came from, zeros elsewhere."""

    dimensions = 2


class MaxUnpool3d(_MaxUnpool):
    """Puts pooled numbers back where they came from, zeros elsewhere."""

    dimensions = 3


class AvgPool1d(Module):
    """The mean of each window of (N, C, L)."""

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode,
            self.count_include_pad,
        )  # fmt: skip

    def extra_repr(self) -> str:
        kernel, stride, padding = (
            v if isinstance(v, tuple) else (v,)
            for v in (self.kernel_size, self.stride, self.padding)
        )
        return f"kernel_size={kernel}, stride={stride}, padding={padding}"


class _AvgPool(Module):
    dimensions = 0

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        return _per_dimension("avg_pool", self.dimensions)(  # type: ignore[no-any-return]
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode,
            self.count_include_pad, self.divisor_override,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool2d(_AvgPool):
    """The mean of each window of (N, C, H, W)."""

    dimensions = 2


class AvgPool3d(_AvgPool):
    """The mean of each window of (N, C, D, H, W)."""

    dimensions = 3


class _LPPool(Module):
    dimensions = 0

    def __init__(
        self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        return _per_dimension("lp_pool", self.dimensions)(  # type: ignore[no-any-return]
            input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode
        )

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPool):
    """The p-norm of each window of (N, C, L)."""

    dimensions = 1


class LPPool2d(_LPPool):
    """The p-norm of each window of (N, C, H, W)."""

    dimensions = 2


class LPPool3d(_LPPool):
    """The p-norm of each window of (N, C, D, H, W)."""

    dimensions = 3


class _AdaptivePool(Module):
    dimensions = 0

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class _AdaptiveAvgPool(_AdaptivePool):
    def forward(self, input: Tensor) -> Tensor:
        return _per_dimension("adaptive_avg_pool", self.dimensions)(input, self.output_size)  # type: ignore[no-any-return]


class _AdaptiveMaxPool(_AdaptivePool):
    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        return _per_dimension("adaptive_max_pool", self.dimensions)(
            input, self.output_size, self.return_indices
        )


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Means over as many windows as the output has places."""

    dimensions = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Means over as many windows as the output has places."""

    dimensions = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Means over as many windows as the output has places."""

    dimensions = 3


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Maxima over as many windows as the output has places."""

    dimensions = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Maxima over as many windows as the output has places."""

    dimensions = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Maxima over as many windows as the output has places."""

    dimensions = 3
