"""Which convolutions become native kernels, and which kernels these are.

Takes ``conv``, ``conv_input`` and ``conv_weight`` over one or two dimensions; others run their NumPy
evaluation. The one place where an implementation of a convolution is chosen.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from evergrad.compiler.conv_direct import (
    Axis,
    Correlation,
    Steps,
    correlation_kernel,
    packed_bytes,
    weight_kernel,
)
from evergrad.compiler.conv_text import is_native, vector_for
from evergrad.compiler.conv_weight import (
    Side,
    WeightGradient,
    gradient_kernel,
    partial_bytes,
    sum_kernel,
)
from evergrad.compiler.gemm import Product, gemm_kernel
from evergrad.compiler.lowering import Lowering, lowers
from evergrad.compiler.windows import in_two_dims
from evergrad.core.trace import Equation
from evergrad.ops.sliding import Windows


def _fits(eqn: Equation) -> bool:
    types = [a.type for a in eqn.args] + [eqn.outs[0].type]
    return (
        is_native(types[-1].dtype)
        and all(t.dtype is types[-1].dtype and 0 < t.numel < 1 << 31 for t in types)
        and len(eqn.attrs["windows"].size) <= 2
    )


def _as_image(array: Any) -> Any:
    """An array of one dimension as one of a single row."""
    return array if array.ndim == 4 else array[:, :, np.newaxis, :]


def _steps(array: Any) -> Steps:
    """The steps of an image in elements."""
    return Steps(*[s // array.itemsize for s in array.strides])


def _in_order(shape: tuple[int, ...]) -> Steps:
    channel = shape[-1] * (shape[-2] if len(shape) == 4 else 1)
    return Steps(shape[1] * channel, channel, shape[-1], 1)


# -- products -----------------------------------------------------------------------------------


def _lower_pointwise(lowering: Lowering, eqn: Equation, transposed: bool) -> bool:
    """A kernel of one element makes a convolution a product of matrices."""
    groups = eqn.attrs["groups"]
    image, weight = (a.layout for a in eqn.args)
    if not image.flags.c_contiguous or not weight.flags.c_contiguous:
        return False
    samples, channels = image.shape[:2]
    rows = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1])
    if transposed:
        rows = rows.swapaxes(1, 2)
    columns = image.reshape(samples, groups, channels // groups, -1)
    product = Product(rows, columns, (samples, groups))
    if product.a is None or product.b is None:
        return False
    out = eqn.outs[0]
    kernel = gemm_kernel(product, out.type.dtype, product.n)
    work = product.m * product.n * product.k * samples * groups // 8
    lowering.native(f"{eqn.op.name} pointwise", kernel, eqn.args, [out], work)
    return True


# -- correlations -------------------------------------------------------------------------------


def _forward_axis(windows: Windows, dim: int) -> Axis:
    begin, dilation = -windows.padding[dim][0], windows.dilation[dim]
    taps = tuple((k, begin + k * dilation) for k in range(windows.kernel[dim]))
    return Axis(windows.size[dim], windows.counts[dim], windows.stride[dim], 0, 1, taps)


def _backward_axes(windows: Windows, dim: int) -> list[Axis]:
    """One axis for each phase of x: its elements that the same elements of the kernel meet."""
    size, stride, dilation = windows.size[dim], windows.stride[dim], windows.dilation[dim]
    axes = []
    for phase in range(min(stride, size)):
        moved = phase + windows.padding[dim][0]
        taps = tuple(
            (k, (moved - k * dilation) // stride)
            for k in range(windows.kernel[dim])
            if (moved - k * dilation) % stride == 0
        )
        count = -(-(size - phase) // stride)
        axes.append(Axis(windows.counts[dim], count, 1, phase, stride, taps))
    return axes


def _lower_correlation(
    lowering: Lowering, eqn: Equation, given: Correlation, steps: tuple[int, int, int]
) -> None:
    """Lay the weight out (with these steps from group, output and channel to the next) and go over
    the image."""
    image, weight = eqn.args
    out = eqn.outs[0]
    vector = vector_for(out.type.dtype)
    weight_image = _as_image(weight.layout)
    _, _, row, column = _steps(weight_image)
    taps = [r * row + c * column for r, c in given.taps]
    packed = lowering.scratch(packed_bytes(vector, given), f"{eqn.op.name} weight")
    pack = weight_kernel(vector, given, *steps, taps)
    lowering.native(f"{eqn.op.name} pack", pack, [weight], [packed], weight.type.numel)
    kernel = correlation_kernel(
        vector, given, _steps(_as_image(image.layout)), _in_order(out.type.shape)
    )
    pixels = given.rows.count * given.columns.count * given.samples * given.groups
    work = pixels * given.outputs * given.channels * len(given.taps) // 8
    lowering.native(eqn.op.name, kernel, [image, packed], [out], work)


@lowers("conv")
def lower_conv(lowering: Lowering, eqn: Equation) -> bool:
    if not _fits(eqn):
        return False
    windows, groups = in_two_dims(eqn.attrs["windows"]), eqn.attrs["groups"]
    if windows.is_pointwise and _lower_pointwise(lowering, eqn, False):
        return True
    image, weight = (a.type.shape for a in eqn.args)
    outputs = weight[0] // groups
    rows, columns = (_forward_axis(windows, dim) for dim in (0, 1))
    given = Correlation(image[0], groups, weight[1], outputs, rows, columns)
    output, channel, _, _ = _steps(_as_image(eqn.args[1].layout))
    _lower_correlation(lowering, eqn, given, (outputs * output, output, channel))
    return True


@lowers("conv_input")
def lower_conv_input(lowering: Lowering, eqn: Equation) -> bool:
    if not _fits(eqn):
        return False
    windows, groups = in_two_dims(eqn.attrs["windows"]), eqn.attrs["groups"]
    if windows.is_pointwise and _lower_pointwise(lowering, eqn, True):
        return True
    image, weight = (a.type.shape for a in eqn.args)
    inputs = weight[0] // groups
    channel, output, _, _ = _steps(_as_image(eqn.args[1].layout))
    for rows in _backward_axes(windows, 0):
        for columns in _backward_axes(windows, 1):
            given = Correlation(image[0], groups, inputs, weight[1], rows, columns)
            _lower_correlation(lowering, eqn, given, (inputs * channel, output, channel))
    return True


@lowers("conv_weight")
def lower_conv_weight(lowering: Lowering, eqn: Equation) -> bool:
    if not _fits(eqn):
        return False
    windows, groups = in_two_dims(eqn.attrs["windows"]), eqn.attrs["groups"]
    y, x = eqn.args
    out = eqn.outs[0]
    rows, columns = (
        Side(windows.size[dim], windows.counts[dim], windows.kernel[dim], windows.stride[dim],
             windows.dilation[dim], windows.padding[dim][0])
        for dim in (0, 1)
    )  # fmt: skip
    given = WeightGradient(
        x.type.shape[0], groups, x.type.shape[1] // groups, y.type.shape[1] // groups, rows, columns
    )
    vector = vector_for(out.type.dtype)
    kernel = gradient_kernel(
        vector, given, _steps(_as_image(x.layout)), _steps(_as_image(y.layout))
    )
    sums = lowering.scratch(partial_bytes(vector, given), f"{eqn.op.name} sums")
    work = y.type.numel * given.channels * rows.kernel * columns.kernel // 8
    lowering.native(eqn.op.name, kernel, [y, x], [sums], work)
    lowering.native(f"{eqn.op.name} sum", sum_kernel(vector, given), [], [sums, out])
    return True
