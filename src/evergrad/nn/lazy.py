"""Layers that learn their input size from the first input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evergrad.nn.conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from evergrad.nn.linear import Linear
from evergrad.nn.module import Module
from evergrad.nn.norm import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
)
from evergrad.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike, DtypeLike, Ints
    from evergrad.nn.parameter import Parameter


class LazyModuleMixin:
    """Turns into its ``cls_to_become`` when the first input has told the missing size."""

    cls_to_become: type

    def has_uninitialized_params(self) -> bool:
        tables = (*self._parameters.values(), *self._buffers.values())  # type: ignore[attr-defined]
        return any(is_lazy(value) for value in tables)

    def initialize_parameters(self, input: object) -> None:
        """Note the missing size and, unless a state was loaded, make the parameters."""
        raise NotImplementedError

    def _materialize(self, **shapes: object) -> None:
        if not self.has_uninitialized_params():
            return
        for name, shape in shapes.items():
            tensor = getattr(self, name)
            if is_lazy(tensor):
                tensor.materialize(shape)
        self.reset_parameters()

    def __call__(self, *args: object, **kwargs: object) -> Any:
        self.initialize_parameters(*args, **kwargs)
        self.__class__ = self.cls_to_become
        return self(*args, **kwargs)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params():
            super().reset_parameters()  # type: ignore[misc]


class LazyLinear(LazyModuleMixin, Linear):
    """A linear layer whose ``in_features`` come from the first input."""

    cls_to_become = Linear

    def __init__(
        self,
        out_features: int,
        bias: bool = True,
        device: DeviceLike = None,
        dtype: DtypeLike = None,
    ) -> None:
        Module.__init__(self)
        self.in_features: int = 0
        self.out_features = out_features
        self.weight: Parameter = UninitializedParameter(dtype=dtype)
        if bias:
            self.bias: Parameter = UninitializedParameter(dtype=dtype)
        else:
            self.register_parameter("bias", None)

    def initialize_parameters(self, input: Any) -> None:
        self.in_features = input.shape[-1]
        shape = (self.out_features, self.in_features)
        self._materialize(weight=shape, bias=shape[:1])


class _LazyConv(LazyModuleMixin):
    """A convolution whose ``in_channels`` come from the first input."""

    def _make_lazily(self, out_channels: int, bias: bool, dtype: DtypeLike) -> None:
        self.in_channels = 0
        self.out_channels = out_channels
        self.weight = UninitializedParameter(dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(dtype=dtype)

    def initialize_parameters(self, input: Any, *rest: object) -> None:
        rank = self.dimensions  # type: ignore[attr-defined]
        if input.ndim not in (rank + 1, rank + 2):
            raise RuntimeError(
                f"Expected {rank + 1}D (unbatched) or {rank + 2}D (batched) input to "
                f"{type(self).__name__}, but got input of size: {input.shape}"
            )
        channels = input.shape[-1 - rank]
        groups = self.groups  # type: ignore[attr-defined]
        if channels % groups or self.out_channels % groups:
            raise ValueError(
                f"channels {channels} and {self.out_channels} must be divisible by {groups} groups"
            )
        self.in_channels = channels
        shape = (
            (channels, self.out_channels // groups)
            if self.transposed  # type: ignore[attr-defined]
            else (self.out_channels, channels // groups)
        )
        kernel = self.kernel_size  # type: ignore[attr-defined]
        self._materialize(weight=(*shape, *kernel), bias=(self.out_channels,))


class _LazyConvolution(_LazyConv):
    def __init__(
        self, out_channels: int, kernel_size: Ints, stride: Ints = 1, padding: Ints | str = 0,
        dilation: Ints = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros",
        device: DeviceLike = None, dtype: DtypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__(  # type: ignore[call-arg]
            0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode,
            device, dtype,
        )  # fmt: skip
        self._make_lazily(out_channels, bias, dtype)


class _LazyConvTranspose(_LazyConv):
    def __init__(
        self, out_channels: int, kernel_size: Ints, stride: Ints = 1, padding: Ints | str = 0,
        output_padding: Ints = 0, groups: int = 1, bias: bool = True, dilation: Ints = 1,
        padding_mode: str = "zeros", device: DeviceLike = None, dtype: DtypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__(  # type: ignore[call-arg]
            0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation,
            padding_mode, device, dtype,
        )  # fmt: skip
        self._make_lazily(out_channels, bias, dtype)


class LazyConv1d(_LazyConvolution, Conv1d):
    """A lazy :class:`Conv1d`.

    ``in_channels`` is read from the first input; the other arguments are those of
    :class:`Conv1d`, whose class the layer then has.

    >>> layer = nn.LazyConv1d(4, kernel_size=3)
    >>> layer(eg.ones(1, 2, 8)).shape
    evergrad.Size([1, 4, 6])
    >>> layer.in_channels
    2
    """

    cls_to_become = Conv1d


class LazyConv2d(_LazyConvolution, Conv2d):
    """A lazy :class:`Conv2d`.

    ``in_channels`` is read from the first input; the other arguments are those of
    :class:`Conv2d`, whose class the layer then has.

    >>> layer = nn.LazyConv2d(4, kernel_size=3)
    >>> layer(eg.ones(1, 2, 8, 8)).shape
    evergrad.Size([1, 4, 6, 6])
    >>> layer.in_channels
    2
    """

    cls_to_become = Conv2d


class LazyConv3d(_LazyConvolution, Conv3d):
    """A lazy :class:`Conv3d`.

    ``in_channels`` is read from the first input; the other arguments are those of
    :class:`Conv3d`, whose class the layer then has.

    >>> layer = nn.LazyConv3d(4, kernel_size=3)
    >>> layer(eg.ones(1, 2, 8, 8, 8)).shape
    evergrad.Size([1, 4, 6, 6, 6])
    >>> layer.in_channels
    2
    """

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyConvTranspose, ConvTranspose1d):
    """A lazy :class:`ConvTranspose1d`.

    ``in_channels`` is read from the first input; the other arguments are those of
    :class:`ConvTranspose1d`, whose class the layer then has.

    >>> layer = nn.LazyConvTranspose1d(4, kernel_size=3)
    >>> layer(eg.ones(1, 2, 8)).shape
    evergrad.Size([1, 4, 10])
    >>> layer.in_channels
    2
    """

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTranspose, ConvTranspose2d):
    """A lazy :class:`ConvTranspose2d`.

    ``in_channels`` is read from the first input; the other arguments are those of
    :class:`ConvTranspose2d`, whose class the layer then has.

    >>> layer = nn.LazyConvTranspose2d(4, kernel_size=3)
    >>> layer(eg.ones(1, 2, 8, 8)).shape
    evergrad.Size([1, 4, 10, 10])
    >>> layer.in_channels
    2
    """

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvTranspose, ConvTranspose3d):
    """A lazy :class:`ConvTranspose3d`.

    ``in_channels`` is read from the first input; the other arguments are those of
    :class:`ConvTranspose3d`, whose class the layer then has.

    >>> layer = nn.LazyConvTranspose3d(4, kernel_size=3)
    >>> layer(eg.ones(1, 2, 8, 8, 8)).shape
    evergrad.Size([1, 4, 10, 10, 10])
    >>> layer.in_channels
    2
    """

    cls_to_become = ConvTranspose3d


class _LazyNorm(LazyModuleMixin):
    """A norm whose ``num_features`` come from the first input."""

    def __init__(
        self, eps: float = 1e-5, momentum: object = 0.1, affine: bool = True,
        track_running_stats: bool = True, device: DeviceLike = None, dtype: DtypeLike = None, *,
        bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(  # type: ignore[call-arg]
            0, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )
        if affine:
            self.weight = UninitializedParameter(dtype=dtype)
            if bias:
                self.bias = UninitializedParameter(dtype=dtype)
        if track_running_stats:
            self.running_mean: UninitializedBuffer = UninitializedBuffer(dtype=dtype)
            self.running_var: UninitializedBuffer = UninitializedBuffer(dtype=dtype)

    def initialize_parameters(self, input: Any) -> None:
        self.num_features: Any = input.shape[1]
        names = ("weight", "bias", "running_mean", "running_var")
        self._materialize(**dict.fromkeys(names, (self.num_features,)))


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d):
    """A lazy :class:`BatchNorm1d`.

    ``num_features`` is read from the first input; the other arguments are those of
    :class:`BatchNorm1d`, whose class the layer then has.

    >>> layer = nn.LazyBatchNorm1d()
    >>> _ = layer(eg.ones(2, 3))
    >>> layer
    BatchNorm1d(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)
    """

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d):
    """A lazy :class:`BatchNorm2d`.

    ``num_features`` is read from the first input; the other arguments are those of
    :class:`BatchNorm2d`, whose class the layer then has.

    >>> layer = nn.LazyBatchNorm2d()
    >>> _ = layer(eg.ones(2, 3, 4, 4))
    >>> layer
    BatchNorm2d(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)
    """

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d):
    """A lazy :class:`BatchNorm3d`.

    ``num_features`` is read from the first input; the other arguments are those of
    :class:`BatchNorm3d`, whose class the layer then has.

    >>> layer = nn.LazyBatchNorm3d()
    >>> _ = layer(eg.ones(2, 3, 4, 4, 4))
    >>> layer
    BatchNorm3d(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)
    """

    cls_to_become = BatchNorm3d


class LazyInstanceNorm1d(_LazyNorm, InstanceNorm1d):
    """A lazy :class:`InstanceNorm1d`.

    ``num_features`` is read from the first input; the other arguments are those of
    :class:`InstanceNorm1d`, whose class the layer then has.

    >>> layer = nn.LazyInstanceNorm1d()
    >>> _ = layer(eg.ones(2, 3, 4))
    >>> layer
    InstanceNorm1d(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)
    """

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyNorm, InstanceNorm2d):
    """A lazy :class:`InstanceNorm2d`.

    ``num_features`` is read from the first input; the other arguments are those of
    :class:`InstanceNorm2d`, whose class the layer then has.

    >>> layer = nn.LazyInstanceNorm2d()
    >>> _ = layer(eg.ones(2, 3, 4, 4))
    >>> layer
    InstanceNorm2d(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)
    """

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyNorm, InstanceNorm3d):
    """A lazy :class:`InstanceNorm3d`.

    ``num_features`` is read from the first input; the other arguments are those of
    :class:`InstanceNorm3d`, whose class the layer then has.

    >>> layer = nn.LazyInstanceNorm3d()
    >>> _ = layer(eg.ones(2, 3, 4, 4, 4))
    >>> layer
    InstanceNorm3d(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)
    """

    cls_to_become = InstanceNorm3d
