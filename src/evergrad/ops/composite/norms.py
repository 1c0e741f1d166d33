"""Normalisation by the mean and variance of groups of elements: plain functions over rows.

16-bit floats are normalised in float32 and rounded once, at the end.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from evergrad.core import dtypes
from evergrad.core.autocast import as_float32
from evergrad.core.bind import bind, cast
from evergrad.core.composite import composite
from evergrad.core.compound import is_jagged
from evergrad.core.prepared import prepared
from evergrad.core.shapes import Shape, as_shape
from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.errors import ShapeError
from evergrad.ops.composite.activations import widened
from evergrad.ops.rows.creation.constants import ones, zeros
from evergrad.ops.rows.elementwise.basic import rsqrt
from evergrad.ops.rows.movement.views import clone, contiguous, movedim, owned, reshape
from evergrad.ops.rows.pool.geometry import Windows
from evergrad.ops.rows.pool.windows import WINDOW_SUM
from evergrad.ops.rows.reduce.sums import mean
from evergrad.ops.surface.handles import detach
from evergrad.ops.surface.public import expose

if TYPE_CHECKING:
    from evergrad.core.types import Ints

# -- over the last dimensions -------------------------------------------------------------------


def _check_last(name: str, input: Tensor, shape: Shape, **parameters: Tensor | None) -> None:
    own = input._type.shape
    if not shape:
        raise ShapeError(
            f"Expected normalized_shape to be at least 1-dimensional, i.e., containing at least "
            f"one element, but got normalized_shape = {list(shape)}"
        )
    for word, parameter in parameters.items():
        if parameter is not None and parameter._type.shape != shape:
            raise ShapeError(
                f"Expected {word} to be of same shape as normalized_shape, but got {word} of shape "
                f"{list(parameter._type.shape)} and normalized_shape = {list(shape)}"
            )
    if own[-len(shape) :] != shape:
        raise ShapeError(
            f"Given normalized_shape={list(shape)}, expected input with shape "
            f"[*, {', '.join(map(str, shape))}], but got input of size{list(own)}"
        )


def _shape_of(normalized_shape: Ints) -> Shape:
    return as_shape((normalized_shape,))


def _row_by_row(input: Tensor) -> Tensor:
    """The input, 16-bit floats as float32, in the order in which PyTorch lays out the result."""
    return widened(contiguous(input))


def _centered(x: Tensor, dims: Shape, corrected: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """The elements with mean 0 over the dimensions; the mean and the variance.

    The mean of elements far from zero is rounded by more than their differences are. What that
    leaves is subtracted too: the mean of the differences, which is read in the same pass as that of
    their squares, and whose derivative is zero. Its square is below the rounding of the variance.
    """
    average = mean(x, dims, True)
    near = x - average
    variance = mean(near * near, dims, True)
    if corrected:
        near = near - detach(mean(near, dims, True))
    return near, average, variance


def _normalized(x: Tensor, dims: Shape, eps: float) -> Tensor:
    """With mean 0 and variance 1 over the dimensions."""
    centered, _, variance = _centered(x, dims)
    return centered * rsqrt(variance + eps)


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    if weight is not None:
        x = x * weight
    return x if bias is None else x + bias


@expose("layer_norm", method=False, out=False)
def _layer_norm(
    input: Tensor, normalized_shape: Ints, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5, cudnn_enable: bool = True,
) -> Tensor:  # fmt: skip
    """``nn.functional.layer_norm`` with the arguments of PyTorch's ``torch.layer_norm``."""
    return layer_norm(input, normalized_shape, weight, bias, eps)


@prepared
def layer_norm(
    input: Tensor, normalized_shape: Ints, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Mean 0 and variance 1 over the last dimensions, then scaled and shifted."""
    shape = _shape_of(normalized_shape)
    _check_last("layer_norm", input, shape, weight=weight, bias=bias)
    if is_jagged(input):
        return input.mapped("layer_norm", lambda x: layer_norm(x, shape, weight, bias, eps))  # type: ignore[attr-defined, no-any-return]
    dims = tuple(range(input.ndim - len(shape), input.ndim))
    return cast(_layer_normed(_row_by_row(input), weight, bias, dims=dims, eps=eps), input.dtype)


@composite("layer_norm", least=16, aten="native_layer_norm")
def _layer_normed(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, *, dims: Shape, eps: float
) -> Tensor:
    return _affine(_normalized(x, dims, eps), weight, bias)


@expose(method=False, out=False)
@prepared
def rms_norm(
    input: Tensor, normalized_shape: Ints, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Divided by the root of the mean square over the last dimensions, then scaled."""
    shape = _shape_of(normalized_shape)
    _check_last("rms_norm", input, shape, weight=weight)
    if is_jagged(input):
        return input.mapped("rms_norm", lambda x: rms_norm(x, shape, weight, eps))  # type: ignore[attr-defined, no-any-return]
    dims = tuple(range(input.ndim - len(shape), input.ndim))
    x = _row_by_row(input)
    smallest = dtypes.finfo(x.dtype).eps if eps is None else eps
    return cast(_rms_normed(x, weight, dims=dims, eps=smallest), input.dtype)


@composite("rms_norm", least=16, aten="_fused_rms_norm")
def _rms_normed(x: Tensor, weight: Tensor | None, *, dims: Shape, eps: float) -> Tensor:
    return _affine(x * rsqrt(mean(x * x, dims, True) + eps), weight, None)


# -- over channels ------------------------------------------------------------------------------

# The mean over a batch of so many elements is rounded about once, like PyTorch's. Its correction
# made a compiled training step of the norm a fifth slower.
_LARGE_BATCH = 1 << 16


def _per_channel(parameter: Tensor | None, rank: int) -> Tensor | None:
    """A parameter of [C] so that it broadcasts with [N, C, ...]."""
    if parameter is None:
        return None
    return reshape(parameter, (parameter._type.numel,) + (1,) * (rank - 2))


def _check_channels(input: Tensor, **parameters: Tensor | None) -> None:
    channels = input._type.shape[1]
    for name, parameter in parameters.items():
        if parameter is not None and parameter._type.numel != channels:
            raise ShapeError(
                f"{name} should contain {channels} elements not {parameter._type.numel}: the input "
                f"{list(input._type.shape)} has {channels} channels in dimension 1"
            )


@expose("group_norm", method=False, out=False)
def _group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5, cudnn_enabled: bool = True,
) -> Tensor:  # fmt: skip
    """``nn.functional.group_norm`` with the arguments of PyTorch's ``torch.group_norm``."""
    return _checked_group_norm(input, num_groups, weight, bias, eps)


@prepared
def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Mean 0 and variance 1 over groups of channels of each sample, then scaled and shifted."""
    shape = input._type.shape
    if input.ndim > 1 and 0 < num_groups == input._type.numel and not shape[1] % num_groups:
        raise ValueError(
            "Expected more than 1 value per channel when training, got input size "
            f"{[shape[0] * shape[1] // num_groups, num_groups, *shape[2:]]}"
        )
    return _checked_group_norm(input, num_groups, weight, bias, eps)


def _checked_group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    if input.ndim < 2:
        raise RuntimeError(
            f"Expected at least 2 dimensions for input tensor but received {input.ndim}"
        )
    channels = input._type.shape[1]
    if num_groups <= 0 or channels % num_groups:
        raise RuntimeError(
            "Expected number of channels in input to be divisible by num_groups, but got input of "
            f"shape {list(input._type.shape)} and num_groups={num_groups}"
        )
    for name, parameter in (("weight", weight), ("bias", bias)):
        if parameter is not None and parameter._type.shape != (channels,):
            raise ShapeError(
                f"Expected {name} to be a vector of size equal to the number of channels in input, "
                f"but got {name} of shape {list(parameter._type.shape)} and input of shape "
                f"{list(input._type.shape)}"
            )
    result = _group_normed(_row_by_row(input), weight, bias, num_groups=num_groups, eps=eps)
    return owned(cast(result, input.dtype))


@composite("group_norm", least=16, aten="native_group_norm")
def _group_normed(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, *, num_groups: int, eps: float
) -> Tensor:
    shape, rank = x._type.shape, x.ndim
    groups = reshape(x, (shape[0], num_groups, math.prod(shape[1:]) // num_groups))
    result = reshape(_normalized(groups, (2,), eps), shape)
    return _affine(result, _per_channel(weight, rank), _per_channel(bias, rank))


def batch_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
    weight: Tensor | None = None, bias: Tensor | None = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Mean 0 and variance 1 of each channel over the batch, then scaled and shifted. In training
    the batch's own statistics are used and the running ones move towards them."""
    if training:
        _check_batch(input)
    elif running_mean is None or running_var is None:
        raise RuntimeError("running_mean and running_var must be defined in evaluation mode")
    if input.ndim < 2 and not input._type.numel:
        return clone(input)  # nothing, in no channel
    _check_channels(input, running_mean=running_mean, running_var=running_var, weight=weight,
                    bias=bias)  # fmt: skip
    x = _row_by_row(input)
    if training and not x._type.numel:
        # An empty batch has no statistics, and the running ones learn nothing from it.
        channels = x._type.shape[1]
        blank = zeros(channels, dtype=x.dtype), ones(channels, dtype=x.dtype)
        result = _by_statistics(x, *blank, weight, bias, eps=eps)
    elif training:
        result = _by_own_statistics(x, running_mean, running_var, weight, bias, momentum, eps)
    else:
        assert running_mean is not None and running_var is not None
        result = _by_statistics(x, running_mean, running_var, weight, bias, eps=eps)
    return cast(result, input.dtype)


@expose("batch_norm", method=False, out=False)
def _batch_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, training: bool, momentum: float, eps: float, cudnn_enabled: bool,
) -> Tensor:  # fmt: skip
    """``nn.functional.batch_norm`` with the arguments of PyTorch's ``torch.batch_norm``.

    Args:
        input: (N, C, *)
        weight, bias: (C) or ``None``
        running_mean, running_var: (C) or ``None``
        training: use the statistics of the batch
        momentum, eps: as ``nn.functional.batch_norm`` has them
        cudnn_enabled: accepted

    >>> x = eg.tensor([[1.0], [3.0]])
    >>> eg.batch_norm(x, None, None, None, None, True, 0.1, 0.0, False)
    tensor([[-1.],
            [ 1.]])
    """
    return batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def _check_batch(input: Tensor) -> None:
    shape = input._type.shape
    if shape[0] * math.prod(shape[2:]) == 1:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {list(shape)}"
        )


def _by_own_statistics(
    x: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None,
    bias: Tensor | None, momentum: float, eps: float,
) -> Tensor:  # fmt: skip
    dims = (0, *range(2, x.ndim))
    result, average, variance = _batch_normed(x, weight, bias, dims=dims, eps=eps)
    count = x._type.numel // x._type.shape[1]
    _move_towards(running_mean, average, momentum)
    _move_towards(running_var, variance, momentum, count / max(count - 1, 1))
    return result  # type: ignore[no-any-return]


@composite("batch_norm", least=16, outputs=3, aten="native_batch_norm")
def _batch_normed(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, *, dims: Shape, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """With mean 0 and variance 1 over the dimensions, scaled and shifted by channel; and the mean
    and the variance, as values without a gradient."""
    centered, average, variance = _centered(x, dims, x._type.numel < _LARGE_BATCH)
    scale = _affine(rsqrt(variance + eps), _per_channel(weight, x.ndim), None)
    result = _affine(centered * scale, None, _per_channel(bias, x.ndim))
    return result, detach(average), detach(variance)


def _move_towards(
    running: Tensor | None, value: Tensor, momentum: float, correction: float = 1.0
) -> None:
    """Update a running statistic in place, outside any history."""
    if running is None:
        return
    with using(grad=False):
        seen = cast(reshape(value, running._type.shape), running.dtype)
        running.mul_(1 - momentum).add_(seen, alpha=momentum * correction)


@composite("batch_norm_inference", least=16, aten="native_batch_norm")
def _by_statistics(
    x: Tensor, average: Tensor, variance: Tensor, weight: Tensor | None, bias: Tensor | None, *,
    eps: float,
) -> Tensor:  # fmt: skip
    """Normalised by given statistics. The mean is subtracted first: as a part of one shift per
    channel it would cancel against the elements in the weight's gradient."""
    scale = _per_channel(_affine(rsqrt(variance + eps), weight, None), x.ndim)
    centered = x - reshape(average, (average._type.numel,) + (1,) * (x.ndim - 2))
    return _affine(centered, scale, _per_channel(bias, x.ndim))


def instance_norm(
    input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None,
    weight: Tensor | None = None, bias: Tensor | None = None, use_input_stats: bool = True,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Mean 0 and variance 1 of each channel of each sample, then scaled and shifted."""
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise RuntimeError(
                "Expected running_mean and running_var to be defined when use_input_stats is false"
            )
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    _check_instances(input)
    x = _row_by_row(input)
    dims = tuple(range(2, input.ndim))
    result, average, variance = _batch_normed(x, weight, bias, dims=dims, eps=eps)
    count = math.prod(input._type.shape[2:])
    _move_towards(running_mean, mean(average, 0), momentum)
    _move_towards(running_var, mean(variance, 0), momentum, count / max(count - 1, 1))
    return cast(result, input.dtype)


def _check_instances(input: Tensor) -> None:
    if math.prod(input._type.shape[2:]) == 1:
        raise ValueError(
            "Expected more than 1 spatial element when training, got input size "
            f"{list(input._type.shape)}"
        )


def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """Divided by a power of the mean square over ``size`` neighbouring channels."""
    if input.ndim < 3:
        raise ValueError(
            f"Expected 3D or higher dimensionality input (got {input.ndim} dimensions)"
        )
    if not input._type.numel:
        return input
    if input.ndim > 3:  # PyTorch's mean over three dimensions has a policy, that over two has none
        input = as_float32(input)
    squares = movedim(input * input, 1, -1)
    padding = ((size // 2, (size - 1) // 2),)
    windows = Windows((input._type.shape[1],), (size,), (1,), padding, (1,))
    near = movedim(bind(WINDOW_SUM, squares, windows=windows), -1, 1)
    return input / (near * (alpha / size) + k) ** beta
