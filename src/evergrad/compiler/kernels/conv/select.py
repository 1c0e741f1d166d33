"""Which convolutions become native kernels, and which kernels these are.

Takes ``conv``, ``conv_input`` and ``conv_weight`` over one or two dimensions; others run their
NumPy evaluation. The one place where an implementation of a convolution is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from evergrad.compiler.codegen.ir_builder import Vector, vector_for
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.kernels.conv.batch_lanes import (
    SampleCut,
    image_of,
    is_by_samples,
    outputs_of,
    sample_kernel,
)
from evergrad.compiler.kernels.conv.batch_lanes_weight_grad import (
    GradientCut,
    is_gradient_by_samples,
    sample_gradient_kernel,
)
from evergrad.compiler.kernels.conv.direct import DirectCut, correlation_kernel
from evergrad.compiler.kernels.conv.dot_weight_grad import (
    dot_cycles,
    dot_kernel,
    dot_sum_bytes,
    dot_sum_kernel,
)
from evergrad.compiler.kernels.conv.im2col_weight_grad import (
    Side,
    WeightGradient,
    run_cycles,
    run_kernel,
    run_sum_bytes,
    run_sum_kernel,
    sums_are_gradient,
)
from evergrad.compiler.kernels.conv.output_lanes import PixelCut, pixel_kernel
from evergrad.compiler.kernels.conv.pack_batch_lanes import Image, turn_kernel
from evergrad.compiler.kernels.conv.pack_weight import WeightSteps, packed_bytes, weight_kernel
from evergrad.compiler.kernels.conv.padded_planes import Axis, Correlation, Steps
from evergrad.compiler.kernels.conv.winograd import WinogradCut, is_winograd, winograd_kernel
from evergrad.compiler.kernels.conv.winograd_pack_weight import transform_kernel, transformed_bytes
from evergrad.compiler.kernels.conv.winograd_weight_grad import (
    is_winograd_gradient,
    winograd_cycles,
    winograd_gradient_kernel,
    winograd_sum_bytes,
    winograd_sum_kernel,
)
from evergrad.compiler.kernels.gemm.problem import Product
from evergrad.compiler.kernels.gemm.select import add_product
from evergrad.compiler.kernels.pooling.reduce import in_order, in_two_dims
from evergrad.compiler.native.target import machine
from evergrad.compiler.passes.conv_epilogue import CONV_EPILOGUE, Epilogue, epilogue_of, fits
from evergrad.compiler.schedule.buffers import BufferView
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.core.shapes import contiguous_strides
from evergrad.core.trace import Equation, Var
from evergrad.ops.rows.conv import CONV, CONV_INPUT, CONV_WEIGHT
from evergrad.ops.rows.pool.geometry import Windows

# Pixels of an image without rows of its own are taken so many at a time.
_LONGEST_ROW = 128
# A weight of more bytes comes from far away each time, so many bytes in a cycle.
_NEAR_BYTES = 3 * machine().l2_bytes // 4
_BYTES_A_CYCLE = 8  # fitted by tools/fit_kernel_costs.py


def _with_row(steps: tuple[int, ...]) -> tuple[int, ...]:
    """Steps of a sequence as those of an image of a single row."""
    return steps if len(steps) == 4 else (*steps[:2], 0, steps[2])


def _steps(array: Any) -> Steps:
    """The steps of an image, in elements."""
    return Steps(*_with_row(tuple(s // array.itemsize for s in array.strides)))


def _image(lowering: Lowering, var: Var) -> tuple[Var | BufferView, Steps]:
    """An image with its steps; laid out anew if its columns do not lie one after the other."""
    if var.layout.strides[-1] > 0:
        return var, _steps(var.layout)
    return in_order(lowering, var), _in_order(var.type.shape)


def _in_order(shape: tuple[int, ...]) -> Steps:
    return Steps(*_with_row(contiguous_strides(shape)))


# -- products -----------------------------------------------------------------------------------


def _lower_pointwise(lowering: Lowering, eqn: Equation, transposed: bool) -> bool:
    """A kernel of one element makes a convolution a product of matrices."""
    groups = eqn.attrs["groups"]
    image, weight = eqn.args
    if not image.layout.flags.c_contiguous or not weight.layout.flags.c_contiguous:
        return False
    samples, channels = image.type.shape[:2]
    outputs, inputs = weight.type.shape[:2]
    rows = weight.layout.reshape(groups, outputs // groups, inputs)
    if transposed:
        rows = rows.swapaxes(1, 2)
    columns = image.layout.reshape(samples, groups, channels // groups, -1)
    product = Product(rows, columns, (samples, groups))
    if product.a is None or product.b is None:
        return False
    add_product(
        lowering, f"{eqn.op.name} pointwise", product, [weight, image], eqn.outs[0], product.n
    )
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


def _lower_correlations(
    lowering: Lowering,
    eqn: Equation,
    parts: Sequence[Correlation],
    weight_steps: tuple[int, int, int],
) -> None:
    """For each part of the output lay the weight out (with these steps from group, output and
    channel to the next) and go over the image, with what is then done to what is written."""
    image, weight, *others = eqn.args
    epilogue = epilogue_of(eqn)
    name = "conv" if epilogue else eqn.op.name
    out = eqn.outs[0]
    source, image_steps = _image(lowering, image)
    vector = vector_for(out.type.dtype)
    _, _, row, column = _steps(weight.layout)
    for part in parts:
        steps = WeightSteps(*weight_steps, [r * row + c * column for r, c in part.taps])
        ways = _ways(vector, part, steps, image_steps)
        way = _cheapest(vector, part, ways)
        nbytes, pack, write = _laid_out(vector, part, steps, way)
        packed = lowering.scratch(nbytes, f"{name} weight")
        lowering.add_kernel(f"{name} pack", pack, [weight], [packed], weight.type.numel)
        given = source
        if way == "samples":
            beside = SampleCut.choose(vector, part).tile.vectors
            given = _turned(lowering, vector, image_of(part), source, image_steps, beside)
        kernel = write(vector, part, image_steps, _in_order(out.type.shape), epilogue)
        pixels = part.rows.extent * part.columns.extent * part.samples * part.groups
        work = pixels * part.outputs * part.channels * len(part.taps) // 8
        label = "+".join([name, *(op.name for op in epilogue)])
        lowering.add_kernel(label, kernel, [given, packed, *others], [out], work)


def _turned(
    lowering: Lowering,
    vector: Vector,
    image: Image,
    source: Var | BufferView,
    steps: Steps,
    beside: int,
) -> BufferView:
    """An image with its samples side by side in so many registers."""
    turned = lowering.scratch(image.turned_bytes(vector, beside), "samples side by side")
    kernel = turn_kernel(vector, image, steps.sample, beside)
    lowering.add_kernel("turn samples", kernel, [source], [turned], image.samples * image.elements)
    return turned


def _laid_out(
    vector: Vector, part: Correlation, steps: WeightSteps, way: str
) -> tuple[int, Kernel, Callable[[Vector, Correlation, Steps, Steps, Epilogue], Kernel]]:
    """How a part is computed: the bytes of the weight as it is laid out, the kernel that does so,
    and what makes the kernel that reads it."""
    if way == "winograd":
        nbytes = transformed_bytes(vector, part)
        return nbytes, transform_kernel(vector, part, steps), winograd_kernel
    if way == "pixels":
        outputs, write = PixelCut.choose(vector, part).tile.vectors * vector.lanes, pixel_kernel
    elif way == "samples":
        outputs, write = SampleCut.choose(vector, part).tile.rows, sample_kernel
    else:
        outputs, write = DirectCut.choose(vector, part).tile.rows, correlation_kernel
    nbytes = packed_bytes(vector, part, outputs)
    return nbytes, weight_kernel(vector, part, outputs, steps), write


def _ways(vector: Vector, part: Correlation, steps: WeightSteps, image: Steps) -> list[str]:
    """The ways in which a part can be computed: along rows of pixels (direct), with outputs side by
    side (pixels) or samples (samples), or in fewer products (winograd)."""
    ways = ["direct", "pixels"]
    if steps.are_taps_in_order and image.column == 1 and is_winograd(vector, part):
        ways.append("winograd")
    if is_by_samples(vector, part, image):
        ways.append("samples")
    return ways


def _cheapest(vector: Vector, part: Correlation, ways: Sequence[str]) -> str:
    """The way that takes the fewest cycles."""
    return min(ways, key=lambda way: _cycles(vector, part, way))


def _cycles(vector: Vector, part: Correlation, way: str) -> float:
    """About how many cycles a sample takes."""
    if way == "winograd":
        return WinogradCut.choose(vector, part).cycles(vector, part)
    if way == "samples":
        return SampleCut.choose(vector, part).cycles(vector, part)
    nbytes = part.outputs * part.channels * len(part.taps) * vector.size
    reading = nbytes / _BYTES_A_CYCLE if nbytes > _NEAR_BYTES else 0.0
    if way == "pixels":
        pixels = PixelCut.choose(vector, part)
        return pixels.cycles(vector, part) + pixels.passes(part) * reading
    direct = DirectCut.choose(vector, part)
    return direct.cycles(vector, part) + direct.passes(vector, part) * reading


@lowers(CONV, CONV_EPILOGUE)
def lower_conv(lowering: Lowering, eqn: Equation) -> bool:
    if not fits(eqn):
        return False
    windows, groups = in_two_dims(eqn.attrs["windows"]), eqn.attrs["groups"]
    if windows.is_pointwise and _lower_pointwise(lowering, eqn, False):
        return True
    image, weight = (a.type.shape for a in eqn.args[:2])
    outputs = weight[0] // groups
    rows, columns = (_forward_axis(windows, dim) for dim in (0, 1))
    given = Correlation(image[0], groups, weight[1], outputs, rows, columns)
    output, channel, _, _ = _steps(eqn.args[1].layout)
    steps = outputs * output, output, channel
    _lower_correlations(lowering, eqn, [given], steps)
    return True


@lowers(CONV_INPUT)
def lower_conv_input(lowering: Lowering, eqn: Equation) -> bool:
    if not fits(eqn):
        return False
    windows, groups = in_two_dims(eqn.attrs["windows"]), eqn.attrs["groups"]
    if windows.is_pointwise and _lower_pointwise(lowering, eqn, True):
        return True
    image, weight = (a.type.shape for a in eqn.args)
    inputs = weight[0] // groups
    channel, output, _, _ = _steps(eqn.args[1].layout)
    parts = [
        Correlation(image[0], groups, inputs, weight[1], rows, columns)
        for rows in _backward_axes(windows, 0)
        for columns in _backward_axes(windows, 1)
    ]
    steps = inputs * channel, output, channel
    _lower_correlations(lowering, eqn, parts, steps)
    return True


@lowers(CONV_WEIGHT)
def lower_conv_weight(lowering: Lowering, eqn: Equation) -> bool:
    if not fits(eqn):
        return False
    windows, groups = in_two_dims(eqn.attrs["windows"]), eqn.attrs["groups"]
    y, x = eqn.args
    out = eqn.outs[0]
    vector = vector_for(out.type.dtype)
    sizes = x.type.shape[0], groups, x.type.shape[1] // groups, y.type.shape[1] // groups
    (x_place, x_steps), (y_place, y_steps) = _image(lowering, x), _image(lowering, y)
    if windows.kernel == (1, 1) and not windows.is_padded:
        windows, x_steps, y_steps = _as_pixels(windows, x_steps, y_steps)
    dots = Correlation(*sizes, *(_forward_axis(windows, dim) for dim in (0, 1)))
    runs = WeightGradient(*sizes, *(_side(windows, dim) for dim in (0, 1)))
    work = y.type.numel * prod(out.type.shape[1:]) // 8
    ways = _gradient_ways(vector, dots, runs, x_steps, y_steps)
    way = _cheapest_gradient(vector, dots, runs, ways)
    if way == "samples":
        beside = GradientCut.choose(vector, dots).vectors
        turned = [
            _turned(lowering, vector, outputs_of(dots), y_place, y_steps, beside),
            _turned(lowering, vector, image_of(dots), x_place, x_steps, beside),
        ]
        lowering.add_kernel(eqn.op.name, sample_gradient_kernel(vector, dots), turned, [out], work)
        return True
    kernel, nbytes, total = _weight_way(vector, dots, runs, x_steps, y_steps, way)
    sums = out if total is None else lowering.scratch(nbytes, f"{eqn.op.name} sums")
    lowering.add_kernel(eqn.op.name, kernel, [y_place, x_place], [sums], work)
    if total is not None:
        lowering.add_kernel(f"{eqn.op.name} sum", total, [sums], [out])
    return True


def _weight_way(
    vector: Vector, dots: Correlation, runs: WeightGradient, x: Steps, y: Steps, way: str
) -> tuple[Kernel, int, Kernel | None]:
    """How the gradient of a weight is computed: the kernel that leaves sums, their bytes, and the
    kernel that makes the gradient of them, if it is not what they are."""
    if way == "winograd":
        kernel = winograd_gradient_kernel(vector, runs, x, y)
        return kernel, winograd_sum_bytes(vector, runs), winograd_sum_kernel(vector, runs)
    if way == "dots":
        kernel = dot_kernel(vector, dots, x, y)
        return kernel, dot_sum_bytes(vector, dots), dot_sum_kernel(vector, dots)
    kernel = run_kernel(vector, runs, x, y)
    is_gradient = sums_are_gradient(vector, runs)
    total = None if is_gradient else run_sum_kernel(vector, runs)
    return kernel, run_sum_bytes(vector, runs), total


def _gradient_ways(
    vector: Vector, dots: Correlation, runs: WeightGradient, x: Steps, y: Steps
) -> list[str]:
    """The ways in which the gradient of a weight can be computed: neighbouring pixels in registers
    (dots), the elements of a window's row (runs), samples (samples), or fewer products
    (winograd)."""
    ways = ["dots", "runs"]
    if is_winograd_gradient(vector, runs, x, y):
        ways.append("winograd")
    if is_gradient_by_samples(vector, dots, x, y):
        ways.append("samples")
    return ways


def _cheapest_gradient(
    vector: Vector, dots: Correlation, runs: WeightGradient, ways: Sequence[str]
) -> str:
    """The way that takes the fewest cycles."""
    return min(ways, key=lambda way: _gradient_cycles(vector, dots, runs, way))


def _gradient_cycles(vector: Vector, dots: Correlation, runs: WeightGradient, way: str) -> float:
    """About how many cycles a pixel of y takes."""
    if way == "winograd":
        return winograd_cycles(vector, runs)
    if way == "samples":
        return GradientCut.choose(vector, dots).cycles(vector, dots)
    return dot_cycles(vector, dots) if way == "dots" else run_cycles(vector, runs)


def _as_pixels(windows: Windows, x: Steps, y: Steps) -> tuple[Windows, Steps, Steps]:
    """Windows of one element as those of an image that has nothing between them; in rows of another
    length if both images are one row of pixels."""
    (row_step, column_step), (rows, columns) = windows.stride, windows.counts
    x = x._replace(row=x.row * row_step, column=x.column * column_step)
    if all(steps.row == columns * steps.column for steps in (x, y)):
        pixels = rows * columns
        columns = max(n for n in range(1, min(pixels, _LONGEST_ROW) + 1) if pixels % n == 0)
        rows = pixels // columns
        x, y = (steps._replace(row=columns * steps.column) for steps in (x, y))
    return Windows((rows, columns), (1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1)), x, y


def _side(windows: Windows, dim: int) -> Side:
    return Side(
        windows.size[dim], windows.counts[dim], windows.kernel[dim], windows.stride[dim],
        windows.dilation[dim], windows.padding[dim][0],
    )  # fmt: skip
