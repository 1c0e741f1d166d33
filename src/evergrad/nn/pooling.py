"""Pooling layers of one to three dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evergrad.core.tensor import Tensor
from evergrad.nn import functional as F
from evergrad.nn.conv import spread
from evergrad.nn.module import TensorModule

if TYPE_CHECKING:
    from evergrad.core.types import Ints


def _per_dimension(name: str, dimensions: int) -> Any:
    """The function of a family for a number of dimensions, found when it is called."""
    return getattr(F, f"{name}{dimensions}d")


class _MaxPool(TensorModule):
    dimensions = 0

    def __init__(
        self, kernel_size: Ints, stride: Ints | None = None, padding: Ints | str = 0,
        dilation: Ints = 1, return_indices: bool = False, ceil_mode: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size = kernel_size
        self.stride: int | Sequence[int] = kernel_size if stride is None else stride
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


class _MaxUnpool(TensorModule):
    dimensions = 0

    def __init__(
        self, kernel_size: Ints, stride: Ints | None = None, padding: Ints | str = 0
    ) -> None:
        super().__init__()
        self.kernel_size = spread(kernel_size, self.dimensions)
        self.stride = spread(kernel_size if stride is None else stride, self.dimensions)
        self.padding = spread(padding, self.dimensions)

    def forward(self, input: Tensor, indices: Tensor, output_size: object = None) -> Tensor:
        return _per_dimension("max_unpool", self.dimensions)(  # type: ignore[no-any-return]
            input, indices, self.kernel_size, self.stride, self.padding, output_size
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """Puts pooled numbers back where they came from, zeros elsewhere.

    Args:
        kernel_size: extent of the window of the pool
        stride: distance of its windows; ``kernel_size`` by default
        padding: its border; default 0

    Call it with the values and indices of ``MaxPool1d(..., return_indices=True)``, and with
    ``output_size`` where several inputs have pooled shapes that agree.

    >>> pool = nn.MaxPool1d(2, return_indices=True)
    >>> values, indices = pool(eg.tensor([[1.0, 5.0, 2.0, 3.0]]))
    >>> nn.MaxUnpool1d(2)(values, indices)
    tensor([[0., 5., 0., 3.]])
    """

    dimensions = 1


class MaxUnpool2d(_MaxUnpool):
    """Puts pooled numbers back where they came from, zeros elsewhere.

    Args:
        kernel_size: extent of the window of the pool
        stride: distance of its windows; ``kernel_size`` by default
        padding: its border; default 0

    Call it with the values and indices of ``MaxPool2d(..., return_indices=True)``, and with
    ``output_size`` where several inputs have pooled shapes that agree.

    >>> pool = nn.MaxPool2d(2, return_indices=True)
    >>> values, indices = pool(eg.arange(16.0).view(1, 4, 4))
    >>> nn.MaxUnpool2d(2)(values, indices)[0]
    tensor([[ 0.,  0.,  0.,  0.],
            [ 0.,  5.,  0.,  7.],
            [ 0.,  0.,  0.,  0.],
            [ 0., 13.,  0., 15.]])
    """

    dimensions = 2


class MaxUnpool3d(_MaxUnpool):
    """Puts pooled numbers back where they came from, zeros elsewhere.

    Args:
        kernel_size: extent of the window of the pool
        stride: distance of its windows; ``kernel_size`` by default
        padding: its border; default 0

    Call it with the values and indices of ``MaxPool3d(..., return_indices=True)``, and with
    ``output_size`` where several inputs have pooled shapes that agree.

    >>> pool = nn.MaxPool3d(2, return_indices=True)
    >>> values, indices = pool(eg.arange(8.0).view(1, 2, 2, 2))
    >>> nn.MaxUnpool3d(2)(values, indices).flatten()
    tensor([0., 0., 0., 0., 0., 0., 0., 7.])
    """

    dimensions = 3


class AvgPool1d(TensorModule):
    """The mean of each window of (N, C, L)."""

    def __init__(
        self, kernel_size: Ints, stride: Ints | None = None, padding: Ints | str = 0,
        ceil_mode: bool = False, count_include_pad: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size = kernel_size
        self.stride: int | Sequence[int] = kernel_size if stride is None else stride
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


class _AvgPool(TensorModule):
    dimensions = 0

    def __init__(
        self, kernel_size: Ints, stride: Ints | None = None, padding: Ints | str = 0,
        ceil_mode: bool = False, count_include_pad: bool = True,
        divisor_override: int | None = None,
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


class _LPPool(TensorModule):
    dimensions = 0

    def __init__(
        self,
        norm_type: float,
        kernel_size: Ints,
        stride: Ints | None = None,
        ceil_mode: bool = False,
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
    """The p-norm of each window of (N, C, L).

    ``(sum of x ** norm_type) ** (1 / norm_type)`` over each window.

    Args:
        norm_type: the power p
        kernel_size: extent of the window
        stride: distance of the windows; ``kernel_size`` by default
        ceil_mode: whether a window may reach beyond the end; default ``False``

    Input (N, C, L) or (C, L).

    >>> nn.LPPool1d(2, 2)(eg.tensor([[3.0, 4.0, 0.0, 2.0]]))
    tensor([[5., 2.]])
    """

    dimensions = 1


class LPPool2d(_LPPool):
    """The p-norm of each window of (N, C, H, W).

    ``(sum of x ** norm_type) ** (1 / norm_type)`` over each window.

    Args:
        norm_type: the power p
        kernel_size: extent of the window
        stride: distance of the windows; ``kernel_size`` by default
        ceil_mode: whether a window may reach beyond the end; default ``False``

    Input (N, C, H, W) or (C, H, W).

    >>> nn.LPPool2d(2, 2)(eg.ones(1, 2, 4))
    tensor([[[2., 2.]]])
    """

    dimensions = 2


class LPPool3d(_LPPool):
    """The p-norm of each window of (N, C, D, H, W).

    ``(sum of x ** norm_type) ** (1 / norm_type)`` over each window.

    Args:
        norm_type: the power p
        kernel_size: extent of the window
        stride: distance of the windows; ``kernel_size`` by default
        ceil_mode: whether a window may reach beyond the end; default ``False``

    Input (N, C, D, H, W) or (C, D, H, W).

    >>> nn.LPPool3d(2, 2)(eg.ones(1, 2, 2, 2))
    tensor([[[[2.8284]]]])
    """

    dimensions = 3


class _AdaptivePool(TensorModule):
    dimensions = 0

    def __init__(self, output_size: Ints | Sequence[int | None] | None) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class _AdaptiveAvgPool(_AdaptivePool):
    def forward(self, input: Tensor) -> Tensor:
        return _per_dimension("adaptive_avg_pool", self.dimensions)(input, self.output_size)  # type: ignore[no-any-return]


class _AdaptiveMaxPool(_AdaptivePool):
    def __init__(
        self, output_size: Ints | Sequence[int | None] | None, return_indices: bool = False
    ) -> None:
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
    """Means over as many windows as the output has places.

    Args:
        output_size: extents (D, H, W) of the result, one number for all; ``None`` keeps
            that of the input

    Input (N, C, D, H, W) or (C, D, H, W).

    >>> nn.AdaptiveAvgPool3d((1, 2, None))(eg.ones(1, 4, 6, 8, 5)).shape
    evergrad.Size([1, 4, 1, 2, 5])
    """

    dimensions = 3


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Maxima over as many windows as the output has places.

    Args:
        output_size: extent of the result
        return_indices: give the places of the maxima as well; default ``False``

    Input (N, C, L) or (C, L).

    >>> nn.AdaptiveMaxPool1d(2)(eg.tensor([[1.0, 5.0, 2.0, 3.0]]))
    tensor([[5., 3.]])
    """

    dimensions = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Maxima over as many windows as the output has places."""

    dimensions = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Maxima over as many windows as the output has places.

    Args:
        output_size: extents (D, H, W) of the result, one number for all; ``None`` keeps
            that of the input
        return_indices: give the places of the maxima as well; default ``False``

    Input (N, C, D, H, W) or (C, D, H, W).

    >>> nn.AdaptiveMaxPool3d(2)(eg.ones(1, 4, 6, 8, 5)).shape
    evergrad.Size([1, 4, 2, 2, 2])
    """

    dimensions = 3


def _ratios(ratio: Any, dimensions: int) -> tuple[float, ...] | None:
    """One ratio for each dimension."""
    return (ratio,) * dimensions if isinstance(ratio, float) else ratio


class _FractionalMaxPool(TensorModule):
    dimensions = 0

    def __init__(
        self, kernel_size: Ints, output_size: Ints | Sequence[int | None] | None = None,
        output_ratio: object = None, return_indices: bool = False, _random_samples: Any = None,
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
    """The largest numbers of windows at random places of (N, C, H, W).

    Args:
        kernel_size: extent of each window
        output_size: extents of the result, or
        output_ratio: extents of the result as shares of the input's, between 0 and 1
        return_indices: give the places of the maxima as well; default ``False``

    >>> nn.FractionalMaxPool2d(2, output_ratio=0.5)(eg.ones(1, 1, 6, 8)).shape
    evergrad.Size([1, 1, 3, 4])
    """

    dimensions = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """The largest numbers of windows at random places of (N, C, T, H, W).

    Args:
        kernel_size: extent of each window
        output_size: extents of the result, or
        output_ratio: extents of the result as shares of the input's, between 0 and 1
        return_indices: give the places of the maxima as well; default ``False``

    >>> nn.FractionalMaxPool3d(2, output_size=2)(eg.ones(1, 1, 4, 6, 8)).shape
    evergrad.Size([1, 1, 2, 2, 2])
    """

    dimensions = 3
