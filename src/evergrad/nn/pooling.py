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
        self.stride: Any = kernel_size if stride is None else stride
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
        self.stride: Any = kernel_size if stride is None else stride
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


def _ratios(ratio: Any, dimensions: int) -> tuple[float, ...] | None:
    """One ratio for each dimension."""
    return (ratio,) * dimensions if isinstance(ratio, float) else ratio


class _FractionalMaxPool(Module):
    dimensions = 0

    def __init__(
        self, kernel_size: Any, output_size: Any = None, output_ratio: Any = None,
        return_indices: bool = False, _random_samples: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size = spread(kernel_size, self.dimensions)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else spread(output_size, self.dimensions)
        self.output_ratio: tuple[float, ...] | None = _ratios(output_ratio, self.dimensions)
        if output_size is None and output_ratio is None:
            raise ValueError(
                f"{type(self).__name__} requires specifying either an output size, or a pooling "
                "ratio"
            )
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        if not all(0 < ratio < 1 for ratio in self.output_ratio or ()):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def forward(self, input: Tensor) -> Any:
        return _per_dimension("fractional_max_pool", self.dimensions)(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices,
            _random_samples=self._random_samples,
        )  # fmt: skip


class FractionalMaxPool2d(_FractionalMaxPool):
    """The largest numbers of windows at random places of (N, C, H, W)."""

    dimensions = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """The largest numbers of windows at random places of (N, C, T, H, W)."""

    dimensions = 3
