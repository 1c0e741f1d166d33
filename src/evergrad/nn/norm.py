"""Normalising layers: over batches, channels, groups and features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evergrad.core import dtypes
from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.core.types import StateDict
from evergrad.extension import ExtensionPoint
from evergrad.nn import functional as F
from evergrad.nn import init
from evergrad.nn.module import Module, TensorModule
from evergrad.nn.parameter import Parameter
from evergrad.ops.rows.creation.constants import empty, ones, scalar_tensor, zeros

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike, DtypeLike, Ints


def _make_scale_and_shift(
    module: Module,
    shape: tuple[int, ...],
    scale: bool,
    shift: bool,
    device: DeviceLike,
    dtype: DtypeLike,
) -> None:
    """Register the parameters of an affine norm, or that there are none."""
    for name, present in (("weight", scale), ("bias", shift)):
        made = Parameter(empty(*shape, device=device, dtype=dtype)) if present else None
        module.register_parameter(name, made)


def _reset_scale_and_shift(module: Module) -> None:
    if module.weight is not None:
        init.ones_(module.weight)
    if module.bias is not None:
        init.zeros_(module.bias)


class _RunningNorm(TensorModule):
    """A norm over channels that may keep running statistics."""

    ranks: tuple[int, ...] = ()
    _version = 2

    def __init__(
        self, num_features: int, eps: float, momentum: float | None, affine: bool,
        track_running_stats: bool, device: DeviceLike, dtype: DtypeLike, bias: bool,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        _make_scale_and_shift(self, (num_features,), affine, affine and bias, device, dtype)
        if track_running_stats:
            self.register_buffer("running_mean", zeros(num_features, device=device, dtype=dtype))
            self.register_buffer("running_var", ones(num_features, device=device, dtype=dtype))
            self.register_buffer("num_batches_tracked", scalar_tensor(0, dtype=dtypes.int64))
        else:
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                self.register_buffer(name, None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        self.reset_running_stats()
        _reset_scale_and_shift(self)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim not in self.ranks:
            wanted = " or ".join(f"{r}D" for r in self.ranks)
            raise ValueError(f"expected {wanted} input (got {input.ndim}D input)")

    def _load_from_state_dict(
        self, state_dict: StateDict, prefix: str, local_metadata: Any, *rest: Any
    ) -> None:
        """Checkpoints older than the counter of batches are taken as they are."""
        version = local_metadata.get("version")
        if (version is None or version < 2) and self.num_batches_tracked is not None:
            state_dict.setdefault(prefix + "num_batches_tracked", self.num_batches_tracked)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={self.affine}, bias={self.bias is not None}, "
            f"track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_RunningNorm):
    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
        affine: bool = True, track_running_stats: bool = True, device: DeviceLike = None,
        dtype: DtypeLike = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias
        )

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        factor = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats:
            with using(grad=False):
                self.num_batches_tracked.add_(1)
            if self.momentum is None:  # the plain mean over all batches so far
                factor = 1.0 / float(self.num_batches_tracked)
        from_batch = self.training or self.running_mean is None
        keeps = not self.training or self.track_running_stats
        return self._normalized(input, from_batch, factor, keeps)

    def _normalized(self, input: Tensor, from_batch: bool, factor: float, keeps: bool) -> Tensor:
        return F.batch_norm(
            input, self.running_mean if keeps else None, self.running_var if keeps else None,
            self.weight, self.bias, from_batch, factor, self.eps,
        )  # fmt: skip


class BatchNorm1d(_BatchNorm):
    """Each channel of (N, C) or (N, C, L) normalised over the batch."""

    ranks: tuple[int, ...] = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Each channel of (N, C, H, W) normalised over the batch."""

    ranks: tuple[int, ...] = (4,)


class BatchNorm3d(_BatchNorm):
    """Each channel of (N, C, D, H, W) normalised over the batch."""

    ranks: tuple[int, ...] = (5,)


_sync_batch_norm: ExtensionPoint[..., Tensor] = ExtensionPoint("sync_batch_norm")


class SyncBatchNorm(_BatchNorm):
    """Batch norm with the statistics of the batches of all processes of a group together.

    Batches may have different sizes. In a single process it is batch norm.

    Args:
        num_features: channels C
        eps: added to the variance; default 1e-5
        momentum: weight of the batch in the running statistics; default 0.1
        affine: whether to learn a factor and a summand for each channel; default ``True``
        track_running_stats: whether to keep running statistics; default ``True``
        process_group: the processes; default all

    >>> model = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.BatchNorm1d(3)))
    >>> model[0]
    SyncBatchNorm(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)
    """

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
        affine: bool = True, track_running_stats: bool = True, process_group: object = None,
        device: DeviceLike = None, dtype: DtypeLike = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ValueError(f"expected at least 2D input (got {input.ndim}D input)")

    def _normalized(self, input: Tensor, from_batch: bool, factor: float, keeps: bool) -> Tensor:
        if not from_batch:
            return super()._normalized(input, from_batch, factor, keeps)
        return _sync_batch_norm(
            input, self.running_mean if keeps else None, self.running_var if keeps else None,
            self.weight, self.bias, factor, self.eps, self.process_group,
        )  # fmt: skip

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: object = None) -> Module:
        """The module with every batch norm in it replaced by one of this class."""
        if isinstance(module, _BatchNorm):
            made = cls(
                module.num_features, module.eps, module.momentum, module.affine,
                module.track_running_stats, process_group, bias=module.bias is not None,
            )  # fmt: skip
            made.training = module.training
            made._parameters.update(module._parameters)
            made._buffers.update(module._buffers)
            return made
        for name, child in list(module.named_children()):
            module.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return module


class _InstanceNorm(_RunningNorm):
    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False,
        track_running_stats: bool = False, device: DeviceLike = None, dtype: DtypeLike = None, *,
        bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias
        )

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        unbatched = input.ndim == min(self.ranks)
        given = input.unsqueeze(0) if unbatched else input
        result = F.instance_norm(
            given, self.running_mean, self.running_var, self.weight, self.bias,
            self.training or not self.track_running_stats,
            self.momentum if self.momentum is not None else 0.0, self.eps,
        )  # fmt: skip
        return result.squeeze(0) if unbatched else result


class InstanceNorm1d(_InstanceNorm):
    """Each channel of each (C, L) normalised by itself."""

    ranks: tuple[int, ...] = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Each channel of each (C, H, W) normalised by itself."""

    ranks: tuple[int, ...] = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Each channel of each (C, D, H, W) normalised by itself.

    Args:
        num_features: channels C
        eps: added to the variance; default 1e-5
        momentum: weight of the input in the running statistics; default 0.1
        affine: whether to learn a factor and a summand for each channel; default ``False``
        track_running_stats: whether to keep running statistics; default ``False``

    >>> y = nn.InstanceNorm3d(2)(eg.arange(16.0).view(1, 2, 2, 2, 2))
    >>> eg.allclose(y.std((2, 3, 4), correction=0), eg.ones(1, 2))
    True
    """

    ranks: tuple[int, ...] = (4, 5)


class LayerNorm(TensorModule):
    """The last dimensions normalised together, for each example."""

    def __init__(
        self, normalized_shape: Ints, eps: float = 1e-5, elementwise_affine: bool = True,
        bias: bool = True, device: DeviceLike = None, dtype: DtypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
        self.normalized_shape: tuple[int, ...] = tuple(shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        _make_scale_and_shift(
            self, self.normalized_shape, elementwise_affine, elementwise_affine and bias, device,
            dtype,
        )  # fmt: skip
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew, as the constructor does."""
        _reset_scale_and_shift(self)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )


class RMSNorm(TensorModule):
    """The last dimensions divided by their root mean square."""

    def __init__(
        self, normalized_shape: Ints, eps: float | None = None, elementwise_affine: bool = True,
        device: DeviceLike = None, dtype: DtypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
        self.normalized_shape: tuple[int, ...] = tuple(shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        if elementwise_affine:
            self.weight: Parameter = Parameter(
                empty(*self.normalized_shape, device=device, dtype=dtype)
            )
        else:
            self.register_parameter("weight", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew, as the constructor does."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


class GroupNorm(TensorModule):
    """Channels normalised in groups, for each example."""

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True,
        device: DeviceLike = None, dtype: DtypeLike = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(
                f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})"
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        _make_scale_and_shift(self, (num_channels,), affine, affine and bias, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew, as the constructor does."""
        _reset_scale_and_shift(self)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class LocalResponseNorm(TensorModule):
    """Each channel divided by the energy of its neighbours.

    ``x / (k + alpha / size * sum of x ** 2 of size neighbours) ** beta``.

    Args:
        size: number of neighbouring channels
        alpha: factor; default 1e-4
        beta: exponent; default 0.75
        k: summand; default 1.0

    >>> nn.LocalResponseNorm(2, alpha=1.0)(eg.ones(1, 2, 1)).flatten()
    tensor([0.7378, 0.5946])
    """

    k: float
    beta: float
    alpha: float
    size: int

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(LocalResponseNorm):
    """Local response norm under its older name.

    The arguments are those of :class:`LocalResponseNorm`; the input is (N, C, H, W).

    >>> nn.CrossMapLRN2d(2, alpha=1.0)(eg.ones(1, 2, 1, 1)).flatten()
    tensor([0.7378, 0.5946])
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__(size, alpha, beta, k)
