"""Convolutions of one, two and three dimensions.

Three rows, each bilinear, each the transpose of the other two; together they close under
differentiation of any order. With an input ``x`` [N, C, ...], a weight ``w`` [O, C/groups, ...] and
an output ``y`` [N, O, ...]::

    conv         (x, w) -> y
    conv_input   (y, w) -> x      what a gradient of y gives x; also conv_transpose
    conv_weight  (y, x) -> w      what a gradient of y gives w

Evaluation lays the windows of a few samples out as columns and multiplies matrices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evergrad.core import blas
from evergrad.core.autocast import autocast_policy
from evergrad.core.bind import bind
from evergrad.core.eager.fusion import eager_composite
from evergrad.core.families import bilinear
from evergrad.core.op import Op
from evergrad.core.row_facts import AutocastPolicy, EagerKernel, lowered
from evergrad.core.shapes import Shape, TensorType, tensor_type
from evergrad.core.tensor import Array, Tensor
from evergrad.errors import DTypeError, ShapeError
from evergrad.memory import pool
from evergrad.ops.rows.elementwise.magnitude import conj
from evergrad.ops.rows.movement.views import expand, movedim, reshape
from evergrad.ops.rows.pool.geometry import Windows, per_dim
from evergrad.ops.surface.public import TensorFunction, expose

if TYPE_CHECKING:
    from evergrad.core.types import Ints

# Columns are made for so many samples at a time that they stay in cache.
_COLUMN_BYTES = 4 << 20


# -- types --------------------------------------------------------------------------------------


def _conv_type(x: TensorType, w: TensorType, *, windows: Windows, groups: int) -> TensorType:
    return tensor_type((x.shape[0], w.shape[0], *windows.counts), x.dtype)


def _input_type(y: TensorType, w: TensorType, *, windows: Windows, groups: int) -> TensorType:
    return tensor_type((y.shape[0], w.shape[1] * groups, *windows.size), y.dtype)


def _weight_type(y: TensorType, x: TensorType, *, windows: Windows, groups: int) -> TensorType:
    return tensor_type((y.shape[1], x.shape[1] // groups, *windows.kernel), y.dtype)


# -- evaluation ---------------------------------------------------------------------------------


def _blocks(samples: int, channels: int, windows: Windows, itemsize: int) -> Iterator[slice]:
    """Samples few enough at a time for their columns."""
    each = channels * math.prod(windows.kernel) * math.prod(windows.counts) * itemsize
    step = max(1, _COLUMN_BYTES // max(1, each))
    return (slice(start, min(start + step, samples)) for start in range(0, samples, step))


def _columns(x: Array, windows: Windows, groups: int) -> Array:
    """Every window as a column: [groups, channels/groups * kernel, samples * count]."""
    view = np.moveaxis(windows.view(windows.pad(x)), 0, 1 + len(windows.size))
    columns = pool.empty(view.shape, x.dtype)
    np.copyto(columns, view)
    rows = x.shape[1] // groups * math.prod(windows.kernel)
    return columns.reshape(groups, rows, len(x) * math.prod(windows.counts))


def _channel_rows(y: Array, groups: int) -> Array:
    """Every channel as a row: [groups, channels/groups, samples * count]."""
    samples, channels = y.shape[:2]
    rows = (groups, channels // groups, samples * math.prod(y.shape[2:]))
    return np.ascontiguousarray(y.swapaxes(0, 1)).reshape(rows)


def _weight_rows(w: Array, groups: int) -> Array:
    """Every output channel's weight as a row: [groups, channels/groups, inputs * kernel]."""
    return w.reshape(groups, w.shape[0] // groups, math.prod(w.shape[1:]))


def _conv_eval(x: Array, w: Array, *, windows: Windows, groups: int) -> Array:
    samples, channels = x.shape[:2]
    out = pool.empty((samples, w.shape[0], *windows.counts), x.dtype)
    weight = _weight_rows(w, groups)
    extent = math.prod(windows.counts)
    if windows.is_pointwise:
        by_group = x.reshape(samples, groups, channels // groups, extent)
        blas.matmul(weight, by_group, out=out.reshape(samples, *weight.shape[:2], extent))
        return out
    for block in _blocks(samples, channels, windows, x.itemsize):
        columns = _columns(x[block], windows, groups)
        part = out[block]
        if len(part) == 1:
            blas.matmul(weight, columns, out=part.reshape(*weight.shape[:2], extent))
        else:
            rows = blas.matmul(weight, columns).reshape(w.shape[0], len(part), *windows.counts)
            part[...] = rows.swapaxes(0, 1)
    return out


def _input_eval(y: Array, w: Array, *, windows: Windows, groups: int) -> Array:
    mirrored = _mirrored(windows)
    if mirrored is not None and (w.shape[0] <= w.shape[1] * groups or windows.is_pointwise):
        return _conv_eval(y, _mirror_weight(w, groups), windows=mirrored, groups=groups)
    samples, channels = y.shape[0], w.shape[1] * groups
    out = pool.empty((samples, channels, *windows.size), y.dtype)
    weight = _weight_rows(w, groups).swapaxes(1, 2)
    for block in _blocks(samples, channels, windows, y.itemsize):
        part = out[block]
        columns = blas.matmul(weight, _channel_rows(y[block], groups))
        columns = columns.reshape(channels, *windows.kernel, len(part), *windows.counts)
        total: Any = np.zeros((channels, len(part), *windows.padded), y.dtype)
        for offset, place in windows.offsets():
            total[(..., *place)] += columns[(slice(None), *offset)]
        windows.crop(total, part.swapaxes(0, 1))
    return out


def _mirrored(windows: Windows) -> Windows | None:
    """The windows by which ``conv`` does what ``conv_input`` does, if the stride is 1."""
    reach = [r - 1 for r in windows.reach]
    padding = tuple(
        (r - low, r - high) for r, (low, high) in zip(reach, windows.padding, strict=True)
    )
    if max(windows.stride) > 1 or min(map(min, padding)) < 0:
        return None
    return Windows(windows.counts, windows.kernel, windows.stride, padding, windows.dilation)


def _mirror_weight(w: Any, groups: int) -> Array:
    """The weight with inputs and outputs exchanged and every kernel flipped."""
    outputs, inputs, *kernel = w.shape
    by_group = w.reshape(groups, outputs // groups, inputs, *kernel).swapaxes(1, 2)
    flipped = by_group[(..., *[slice(None, None, -1)] * len(kernel))]
    result: Array = flipped.reshape(groups * inputs, outputs // groups, *kernel)
    return result


def _weight_eval(y: Array, x: Array, *, windows: Windows, groups: int) -> Array:
    samples, channels = x.shape[:2]
    total: Any = 0
    for block in _blocks(samples, channels, windows, x.itemsize):
        columns = _columns(x[block], windows, groups)
        total += blas.matmul(_channel_rows(y[block], groups), columns.swapaxes(1, 2))
    shape = (y.shape[1], channels // groups, *windows.kernel)
    return total.reshape(shape) if samples else np.zeros(shape, y.dtype)


# -- derivatives --------------------------------------------------------------------------------


def _conv_transposes(g: Tensor, x: Tensor, w: Tensor, **attrs: object) -> tuple[Tensor, Tensor]:
    return bind(CONV_INPUT, g, conj(w), **attrs), bind(CONV_WEIGHT, g, conj(x), **attrs)


def _input_transposes(g: Tensor, y: Tensor, w: Tensor, **attrs: object) -> tuple[Tensor, Tensor]:
    return bind(CONV, g, conj(w), **attrs), bind(CONV_WEIGHT, conj(y), g, **attrs)


def _weight_transposes(g: Tensor, y: Tensor, x: Tensor, **attrs: object) -> tuple[Tensor, Tensor]:
    return bind(CONV, conj(x), g, **attrs), bind(CONV_INPUT, conj(y), g, **attrs)


# -- batching -----------------------------------------------------------------------------------


class _Merges(NamedTuple):
    """Into which dimension a batch goes, as (of the argument, of the result): when only the first
    argument has it, only the second, or both (then with one more group per member)."""

    first: tuple[int, int]
    second: tuple[int, int]
    both: tuple[int, int, int]


def _merged(x: Tensor, batch_dim: int, into: int) -> Tensor:
    x = movedim(x, batch_dim, into)
    shape = x._type.shape
    return reshape(x, (*shape[:into], shape[into] * shape[into + 1], *shape[into + 2 :]))


def _split(x: Tensor, dim: int, count: int) -> tuple[Tensor, int]:
    shape = x._type.shape
    return reshape(x, (*shape[:dim], count, shape[dim] // count, *shape[dim + 1 :])), dim


def _batch_conv(
    merges: _Merges,
    op: Op,
    args: Sequence[Tensor],
    dims: Sequence[int | None],
    *,
    windows: Windows,
    groups: int,
) -> tuple[Tensor, int]:
    a, b = args
    left, right = dims
    count = next(x._type.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
    samples_alone = right is None and merges.first == (0, 0)
    if left is not None and right is None and (groups == 1 or samples_alone):
        into, out = merges.first
        result = bind(op, _merged(a, left, into), b, windows=windows, groups=groups)
    elif left is None and right is not None and groups == 1:
        into, out = merges.second
        result = bind(op, a, _merged(b, right, into), windows=windows, groups=groups)
    else:
        into_a, into_b, out = merges.both
        a = _merged(expand(a, (count, *a._type.shape)) if left is None else a, left or 0, into_a)
        b = _merged(expand(b, (count, *b._type.shape)) if right is None else b, right or 0, into_b)
        result = bind(op, a, b, windows=windows, groups=groups * count)
    return _split(result, out, count)


CONV = bilinear("conv", _conv_eval, _conv_type, _conv_transposes,
                batch=partial(_batch_conv, _Merges((0, 0), (0, 1), (1, 0, 1))),
                emit=lowered("kernels.conv"), autocast=AutocastPolicy.KEEP,
                eager=EagerKernel(1 << 5), aten="convolution",
                doc="Every window of the input times the weight.")  # fmt: skip
CONV_INPUT = bilinear("conv_input", _input_eval, _input_type, _input_transposes,
                      batch=partial(_batch_conv, _Merges((0, 0), (1, 1), (1, 0, 1))),
                      emit=lowered("kernels.conv"), autocast=AutocastPolicy.KEEP,
                      eager=EagerKernel(1 << 5),
                      doc="conv's transpose in its input.")  # fmt: skip
CONV_WEIGHT = bilinear("conv_weight", _weight_eval, _weight_type, _weight_transposes,
                       batch=partial(_batch_conv, _Merges((1, 0), (1, 1), (1, 1, 0))),
                       emit=lowered("kernels.conv"), autocast=AutocastPolicy.KEEP,
                       eager=EagerKernel(1 << 5),
                       doc="conv's transpose in its weight.")  # fmt: skip


# -- functions ----------------------------------------------------------------------------------


def _conv(
    rank: int, input: Tensor, weight: Tensor, bias: Tensor | None, stride: Ints,
    padding: Ints | str, dilation: Ints, groups: int,
) -> Tensor:  # fmt: skip
    name = f"conv{rank}d"
    x, unbatched = _with_samples(name, rank, input)
    stride, dilation = _steps(name, rank, stride, dilation)
    _check_factors(name, rank, x, weight)
    size, kernel = x._type.shape[2:], weight._type.shape[2:]
    windows = Windows(
        size, kernel, stride, _padding(padding, rank, kernel, stride, dilation), dilation
    )
    outputs, inputs = weight._type.shape[:2]
    if groups <= 0:
        raise RuntimeError("non-positive groups is not supported")
    if x._type.shape[1] != inputs * groups:
        raise ShapeError(
            f"Given groups={groups}, weight of size {list(weight._type.shape)}, expected "
            f"input{list(x._type.shape)} to have {inputs * groups} channels, but got "
            f"{x._type.shape[1]} channels instead. Channels are dimension 1 of a batch; move them "
            "with .movedim(-1, 1) if they are the last."
        )
    if outputs % groups:
        raise ShapeError(
            f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, "
            f"but got weight of size {list(weight._type.shape)} instead"
        )
    if min(windows.counts, default=1) < 1:
        raise ShapeError(
            f"Calculated padded input size per channel: ({_times(windows.padded)}). Kernel size: "
            f"({_times(windows.reach)}). Kernel size can't be greater than actual input size. "
            "Pass padding=, or use a smaller kernel."
        )
    _check_bias(weight, bias, outputs)
    if bias is None:
        y = bind(CONV, x, weight, windows=windows, groups=groups)
    else:
        y = _conv_and_bias(x, weight, bias, windows=windows, groups=groups)
    return _without_samples(y) if unbatched else y


def _largest_factor(x: Tensor, weight: Tensor, bias: Tensor) -> int:
    """How many elements the larger factor has; none if the other is empty."""
    sizes = x._type.numel, weight._type.numel
    return max(sizes) if min(sizes) else 0


@eager_composite(least=1 << 5, size=_largest_factor, aten="convolution")
def _conv_and_bias(
    x: Tensor, weight: Tensor, bias: Tensor, *, windows: Windows, groups: int
) -> Tensor:
    return _biased(bind(CONV, x, weight, windows=windows, groups=groups), bias)


def _conv_transposed(
    rank: int, input: Tensor, weight: Tensor, bias: Tensor | None, stride: Ints,
    padding: Ints | str, output_padding: Ints, groups: int, dilation: Ints,
) -> Tensor:  # fmt: skip
    name = f"conv_transpose{rank}d"
    y, unbatched = _with_samples(name, rank, input)
    stride, dilation = _steps(name, rank, stride, dilation)
    _check_factors(name, rank, y, weight)
    inputs, outputs = weight._type.shape[0], weight._type.shape[1] * groups
    if y._type.shape[1] != inputs:
        raise ShapeError(
            f"Given transposed=1, weight of size {list(weight._type.shape)}, expected "
            f"input{list(y._type.shape)} to have {inputs} channels, but got "
            f"{y._type.shape[1]} channels instead"
        )
    if inputs % groups:
        raise ShapeError(
            f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, "
            f"but got weight of size {list(weight._type.shape)} instead"
        )
    windows = _transposed_windows(
        y._type.shape[2:], weight._type.shape[2:], stride, per_dim("padding", padding, rank),
        per_dim("output_padding", output_padding, rank), dilation,
    )  # fmt: skip
    _check_bias(weight, bias, outputs)
    x = bind(CONV_INPUT, y, weight, windows=windows, groups=groups)
    if bias is not None:
        x = _biased(x, bias)
    return _without_samples(x) if unbatched else x


def _transposed_windows(
    count: Shape, kernel: Shape, stride: Shape, padding: Shape, extra: Shape, dilation: Shape
) -> Windows:
    """The windows that ``count`` many positions come from; ``extra`` keeps as many more elements
    at the end as padding would otherwise leave out."""
    for e, s, d in zip(extra, stride, dilation, strict=True):
        if e < 0:
            raise RuntimeError("negative output_padding is not supported")
        if e >= s and e >= d:
            raise RuntimeError(
                f"output padding must be smaller than either stride or dilation, but got "
                f"output_padding={list(extra)}, stride={list(stride)}, dilation={list(dilation)}"
            )
    pairs = tuple((p, p - e) for p, e in zip(padding, extra, strict=True))
    size = tuple(
        (c - 1) * s + d * (k - 1) + 1 - low - high
        for c, s, d, k, (low, high) in zip(count, stride, dilation, kernel, pairs, strict=True)
    )
    if min(size) < 1:
        raise ShapeError(
            f"Given input size per channel: ({_times(count)}). Calculated output size per channel: "
            f"({_times(size)}). Output size is too small"
        )
    return Windows(size, kernel, stride, pairs, dilation)


def _with_samples(name: str, rank: int, input: Tensor) -> tuple[Tensor, bool]:
    """The input with a dimension of samples, and whether it had none."""
    if input.ndim == rank + 1:
        return reshape(input, (1, *input._type.shape)), True
    if input.ndim != rank + 2:
        raise ShapeError(
            f"Expected {rank + 1}D (unbatched) or {rank + 2}D (batched) input to {name}, but got "
            f"input of size: {list(input._type.shape)}"
        )
    return input, False


def _steps(name: str, rank: int, stride: Ints, dilation: Ints) -> tuple[Shape, Shape]:
    stride, dilation = per_dim("stride", stride, rank), per_dim("dilation", dilation, rank)
    if min(stride) <= 0:
        raise RuntimeError("non-positive stride is not supported")
    if min(dilation) <= 0:
        raise RuntimeError("dilation should be greater than zero")
    return stride, dilation


def _check_factors(name: str, rank: int, x: Tensor, weight: Tensor) -> None:
    if weight.ndim != rank + 2:
        raise ShapeError(
            f"expected weight to be a {rank + 2}-dimensional tensor in {name}, but got size "
            f"{list(weight._type.shape)}"
        )
    if x.dtype is not weight.dtype:
        raise DTypeError(
            f"Input type ({x.dtype.name}) and weight type ({weight.dtype.name}) should be the same"
        )


def _check_bias(weight: Tensor, bias: Tensor | None, outputs: int) -> None:
    if bias is None:
        return
    if bias._type.shape != (outputs,):
        raise ShapeError(
            f"Given weight of size {list(weight._type.shape)}, expected bias to be 1-dimensional "
            f"with {outputs} elements, but got bias of size {list(bias._type.shape)} instead"
        )
    if bias.dtype is not weight.dtype:
        raise DTypeError(
            f"Input type ({weight.dtype.name}) and bias type ({bias.dtype.name}) should be the same"
        )


def _padding(
    padding: Ints | str, rank: int, kernel: Shape, stride: Shape, dilation: Shape
) -> tuple[tuple[int, int], ...]:
    if padding == "valid":
        return ((0, 0),) * rank
    if padding == "same":
        if max(stride) > 1:
            raise RuntimeError("padding='same' is not supported for strided convolutions")
        total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        return tuple((t // 2, t - t // 2) for t in total)
    if isinstance(padding, str):
        raise RuntimeError(f"Invalid padding string: '{padding}'")
    values = per_dim("padding", padding, rank)
    if min(values) < 0:
        raise RuntimeError("negative padding is not supported")
    return tuple((p, p) for p in values)


def _biased(y: Tensor, bias: Tensor) -> Tensor:
    """``y`` with a number of its own added to each channel."""
    return y + reshape(bias, (bias._type.numel,) + (1,) * (y.ndim - 2))


def _without_samples(y: Tensor) -> Tensor:
    return reshape(y, y._type.shape[1:])


def _times(extents: Sequence[int]) -> str:
    return " x ".join(map(str, extents))


def _convolution(rank: int) -> TensorFunction:
    def function(
        input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1,
        padding: Ints | str = 0, dilation: Ints = 1, groups: int = 1,
    ) -> Tensor:  # fmt: skip
        return _conv(rank, input, weight, bias, stride, padding, dilation, groups)

    function.__name__ = function.__qualname__ = f"conv{rank}d"
    function.__doc__ = f"A convolution over the last {rank} dimension(s)."
    return expose(method=False, out=False)(autocast_policy(AutocastPolicy.LOWER)(function))


def _transposed_convolution(rank: int) -> TensorFunction:
    def function(
        input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1,
        padding: Ints | str = 0, output_padding: Ints = 0, groups: int = 1, dilation: Ints = 1,
    ) -> Tensor:  # fmt: skip
        return _conv_transposed(
            rank, input, weight, bias, stride, padding, output_padding, groups, dilation
        )

    function.__name__ = function.__qualname__ = f"conv_transpose{rank}d"
    function.__doc__ = f"The transpose of a convolution over the last {rank} dimension(s)."
    return expose(method=False, out=False)(autocast_policy(AutocastPolicy.LOWER)(function))


conv1d: TensorFunction = _convolution(1)
conv2d: TensorFunction = _convolution(2)
conv3d: TensorFunction = _convolution(3)
conv_transpose1d: TensorFunction = _transposed_convolution(1)
conv_transpose2d: TensorFunction = _transposed_convolution(2)
conv_transpose3d: TensorFunction = _transposed_convolution(3)
