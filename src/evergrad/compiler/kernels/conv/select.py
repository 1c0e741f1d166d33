"""Algorithm selection and lowering of convolutions and their gradients.

Lowers ``conv``, ``conv_input`` and ``conv_weight`` over one or two dimensions; those over three are
decomposed (:mod:`.passes.decompose_depth`). The algorithm is the one with the fewest estimated
cycles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from evergrad.compiler.codegen.epilogue import Epilogue
from evergrad.compiler.codegen.ir_builder import Vector, vector_for
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.kernels.contiguous import contiguous
from evergrad.compiler.kernels.conv.batch_lanes import (
    BatchLanesTiling,
    batch_lanes_kernel,
    input_image,
    output_image,
    supports_batch_lanes,
)
from evergrad.compiler.kernels.conv.batch_lanes_weight_grad import (
    WeightGradTiling,
    batch_lanes_weight_grad_kernel,
    supports_batch_lanes_weight_grad,
)
from evergrad.compiler.kernels.conv.direct import DirectTiling, direct_kernel
from evergrad.compiler.kernels.conv.dot_weight_grad import (
    dot_cycles,
    dot_kernel,
    dot_sum_bytes,
    dot_sum_kernel,
)
from evergrad.compiler.kernels.conv.epilogue import CONV_EPILOGUE, epilogue_of, fits
from evergrad.compiler.kernels.conv.im2col_weight_grad import (
    WeightGradient,
    WindowAxis,
    im2col_cycles,
    im2col_kernel,
    im2col_sum_bytes,
    im2col_sum_kernel,
    sums_are_gradient,
)
from evergrad.compiler.kernels.conv.output_lanes import OutputLanesTiling, output_lanes_kernel
from evergrad.compiler.kernels.conv.pack_batch_lanes import Image, pack_batch_lanes_kernel
from evergrad.compiler.kernels.conv.pack_weight import (
    WeightStrides,
    pack_weight_kernel,
    packed_bytes,
)
from evergrad.compiler.kernels.conv.padded_planes import Axis, Correlation, Strides
from evergrad.compiler.kernels.conv.winograd import (
    WinogradTiling,
    supports_winograd,
    winograd_kernel,
)
from evergrad.compiler.kernels.conv.winograd_guard import (
    Measured,
    guarded_kernel,
    magnitudes_kernel,
    measured_weight,
    packing_unless_even,
    unless_finite,
)
from evergrad.compiler.kernels.conv.winograd_pack_weight import (
    transform_weight_kernel,
    transformed_bytes,
)
from evergrad.compiler.kernels.conv.winograd_weight_grad import (
    supports_winograd_weight_grad,
    winograd_weight_grad_cycles,
    winograd_weight_grad_kernel,
    winograd_weight_grad_sum_bytes,
    winograd_weight_grad_sum_kernel,
)
from evergrad.compiler.kernels.gemm.problem import Product
from evergrad.compiler.kernels.gemm.select import add_fused_product
from evergrad.compiler.kernels.pooling.reduce import as_2d
from evergrad.compiler.native.target import machine
from evergrad.compiler.schedule.buffers import BufferView
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.core.shapes import contiguous_strides
from evergrad.core.trace import Equation, Var
from evergrad.core.types import Array
from evergrad.ops.rows.conv import CONV, CONV_INPUT, CONV_WEIGHT
from evergrad.ops.rows.pool.geometry import Windows

# Makes a kernel from the strides of x and y and the epilogue.
ConvFactory = Callable[[Vector, Correlation, Strides, Strides, Epilogue | None], Kernel]

# Algorithms for every image, packed by the weight alone.
_DIRECT = ("direct", "output_lanes")
# The longest row of pixels of an image that is flattened.
_LONGEST_ROW = 128
# A weight of more bytes is read from memory on each pass, so many bytes per cycle.
_NEAR_BYTES = 3 * machine().l2_bytes // 4
_BYTES_A_CYCLE = 8  # fitted by tools/fit_kernel_costs.py


def _with_unit_row(strides: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a sequence as those of an image with one row of pixels."""
    return strides if len(strides) == 4 else (*strides[:2], 0, strides[2])


def _strides(array: Array) -> Strides:
    """The strides of an image, in elements."""
    return Strides(*_with_unit_row(tuple(s // array.itemsize for s in array.strides)))


def _operand(lowering: Lowering, var: Var) -> tuple[Var | BufferView, Strides]:
    """An image with its strides; a contiguous copy if its columns do not have a positive stride."""
    if var.layout.strides[-1] > 0:
        return var, _strides(var.layout)
    return contiguous(lowering, var), _contiguous_strides(var.type.shape)


def _unit_columns(lowering: Lowering, var: Var) -> tuple[Var | BufferView, Strides]:
    """A weight with its strides; a contiguous copy if its columns are not contiguous."""
    if var.layout.strides[-1] == var.layout.itemsize:
        return var, _strides(var.layout)
    return contiguous(lowering, var), _contiguous_strides(var.type.shape)


def _contiguous_strides(shape: tuple[int, ...]) -> Strides:
    return Strides(*_with_unit_row(contiguous_strides(shape)))


# -- products -----------------------------------------------------------------------------------


def _lower_pointwise(lowering: Lowering, eqn: Equation, transposed: bool) -> bool:
    """Lower a convolution with a kernel of one element as a matrix product."""
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
    label = f"{eqn.op.name} pointwise"
    add_fused_product(lowering, label, product, eqn, [weight, image], product.n)
    return True


# -- correlations -------------------------------------------------------------------------------


def _forward_axis(windows: Windows, dim: int) -> Axis:
    begin, dilation = -windows.padding[dim][0], windows.dilation[dim]
    taps = tuple((k, begin + k * dilation) for k in range(windows.kernel[dim]))
    return Axis(windows.size[dim], windows.counts[dim], windows.stride[dim], 0, 1, taps)


def _backward_axes(windows: Windows, dim: int) -> list[Axis]:
    """One axis for each phase of x: the elements that the same taps contribute to."""
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
    weight_strides: tuple[int, int, int],
) -> None:
    """For each part of the output pack the weight (with these strides of group, output and channel)
    and add the kernel with its epilogue."""
    image, weight, *others = eqn.args
    epilogue = epilogue_of(eqn)
    name = "conv" if epilogue else eqn.op.name
    out = eqn.outs[0]
    source, image_strides = _operand(lowering, image)
    vector = vector_for(out.type.dtype)
    _, _, row, column = _strides(weight.layout)
    for part in parts:
        strides = WeightStrides(*weight_strides, [r * row + c * column for r, c in part.taps])
        algorithms = _algorithms(vector, part, strides, image_strides)
        algorithm = _cheapest(vector, part, algorithms)
        nbytes, pack, write = _packing(vector, part, strides, algorithm)
        packed = lowering.scratch(nbytes, f"{name} weight")
        lowering.add_kernel(f"{name} pack", pack, [weight], [packed], weight.type.numel)
        operand = source
        if algorithm == "batch_lanes":
            vectors = BatchLanesTiling.choose(vector, part).tile.vectors
            operand = _packed_batch_lanes(
                lowering, vector, input_image(part), source, image_strides, vectors
            )
        out_strides = _contiguous_strides(out.type.shape)
        kernel = write(vector, part, image_strides, out_strides, epilogue)
        pixels = part.rows.extent * part.columns.extent * part.samples * part.groups
        work = pixels * part.outputs * part.channels * len(part.taps) // 8
        label = "+".join([name, *(step.op.name for step in (epilogue.steps if epilogue else ()))])
        weights = [packed]
        if algorithm == "winograd":
            other = min(_DIRECT, key=lambda known: _cycles(vector, part, known))
            nbytes, pack, write = _packing(vector, part, strides, other)
            direct = write(vector, part, image_strides, out_strides, epilogue)
            measure = magnitudes_kernel(vector, image.type.shape, image_strides)
            taps, taps_strides = _unit_columns(lowering, weight)
            measured = (
                Measured(measure, image.type.numel),
                measured_weight(vector, weight.type.shape, taps_strides),
            )
            found = [
                _magnitudes(lowering, name, vector, operand, one)
                for operand, one in zip((source, taps), measured, strict=True)
            ]
            spare = lowering.scratch(nbytes, f"{name} spare weight")
            pack = packing_unless_even(vector, pack, measured)
            lowering.add_kernel(f"{name} pack", pack, [weight, *found], [spare])
            kernel = guarded_kernel(vector, kernel, direct, measured, len(others))
            weights = [packed, spare, *found]
        lowering.add_kernel(label, kernel, [operand, *weights, *others], [out], work)


def _magnitudes(
    lowering: Lowering, name: str, vector: Vector, operand: Var | BufferView, measured: Measured
) -> BufferView:
    """The magnitudes of an operand, measured when the program runs."""
    kernel, elements = measured
    found = lowering.scratch(2 * kernel.chunks * vector.size, f"{name} magnitudes")
    lowering.add_kernel(f"{name} measure", kernel, [operand], [found], elements)
    return found


def _packed_batch_lanes(
    lowering: Lowering,
    vector: Vector,
    image: Image,
    source: Var | BufferView,
    strides: Strides,
    vectors: int,
) -> BufferView:
    """An image packed for so many vectors of batch lanes."""
    packed = lowering.scratch(image.packed_bytes(vector, vectors), "batch lanes")
    kernel = pack_batch_lanes_kernel(vector, image, strides.sample, vectors)
    lowering.add_kernel(
        "pack batch lanes", kernel, [source], [packed], image.samples * image.elements
    )
    return packed


def _packing(
    vector: Vector, part: Correlation, strides: WeightStrides, algorithm: str
) -> tuple[int, Kernel, ConvFactory]:
    """The bytes of the packed weight, the kernel that packs it, and the factory of the kernel that
    reads it."""
    if algorithm == "winograd":
        nbytes = transformed_bytes(vector, part)
        return nbytes, transform_weight_kernel(vector, part, strides), winograd_kernel
    if algorithm == "output_lanes":
        outputs = OutputLanesTiling.choose(vector, part).tile.vectors * vector.lanes
        write = output_lanes_kernel
    elif algorithm == "batch_lanes":
        outputs, write = BatchLanesTiling.choose(vector, part).tile.rows, batch_lanes_kernel
    else:
        outputs, write = DirectTiling.choose(vector, part).tile.rows, direct_kernel
    nbytes = packed_bytes(vector, part, outputs)
    return nbytes, pack_weight_kernel(vector, part, outputs, strides), write


def _algorithms(
    vector: Vector, part: Correlation, strides: WeightStrides, image: Strides
) -> list[str]:
    """The algorithms that support a part: pixel lanes (direct), output-channel lanes, batch lanes,
    or Winograd."""
    algorithms = list(_DIRECT)
    if strides.has_contiguous_taps and image.column == 1 and supports_winograd(vector, part):
        algorithms.append("winograd")
    if supports_batch_lanes(vector, part, image):
        algorithms.append("batch_lanes")
    return algorithms


def _cheapest(vector: Vector, part: Correlation, algorithms: Sequence[str]) -> str:
    """The algorithm with the fewest estimated cycles."""
    return min(algorithms, key=lambda algorithm: _cycles(vector, part, algorithm))


def _cycles(vector: Vector, part: Correlation, algorithm: str) -> float:
    """Estimated cycles of a sample."""
    if algorithm == "winograd":
        return WinogradTiling.choose(vector, part).cycles(vector, part)
    if algorithm == "batch_lanes":
        return BatchLanesTiling.choose(vector, part).cycles(vector, part)
    nbytes = part.outputs * part.channels * len(part.taps) * vector.size
    reading = nbytes / _BYTES_A_CYCLE if nbytes > _NEAR_BYTES else 0.0
    if algorithm == "output_lanes":
        pixels = OutputLanesTiling.choose(vector, part)
        return pixels.cycles(vector, part) + pixels.passes(part) * reading
    direct = DirectTiling.choose(vector, part)
    return direct.cycles(vector, part) + direct.passes(vector, part) * reading


@lowers(CONV, CONV_EPILOGUE)
def lower_conv(lowering: Lowering, eqn: Equation) -> bool:
    if not fits(eqn):
        return False
    windows, groups = as_2d(eqn.attrs["windows"]), eqn.attrs["groups"]
    if windows.is_pointwise and _lower_pointwise(lowering, eqn, False):
        return True
    image, weight = (a.type.shape for a in eqn.args[:2])
    outputs = weight[0] // groups
    rows, columns = (_forward_axis(windows, dim) for dim in (0, 1))
    correlation = Correlation(image[0], groups, weight[1], outputs, rows, columns)
    output, channel, _, _ = _strides(eqn.args[1].layout)
    strides = outputs * output, output, channel
    _lower_correlations(lowering, eqn, [correlation], strides)
    return True


@lowers(CONV_INPUT)
def lower_conv_input(lowering: Lowering, eqn: Equation) -> bool:
    if not fits(eqn):
        return False
    windows, groups = as_2d(eqn.attrs["windows"]), eqn.attrs["groups"]
    if windows.is_pointwise and _lower_pointwise(lowering, eqn, True):
        return True
    image, weight = (a.type.shape for a in eqn.args)
    inputs = weight[0] // groups
    channel, output, _, _ = _strides(eqn.args[1].layout)
    parts = [
        Correlation(image[0], groups, inputs, weight[1], rows, columns)
        for rows in _backward_axes(windows, 0)
        for columns in _backward_axes(windows, 1)
    ]
    strides = inputs * channel, output, channel
    _lower_correlations(lowering, eqn, parts, strides)
    return True


@lowers(CONV_WEIGHT)
def lower_conv_weight(lowering: Lowering, eqn: Equation) -> bool:
    if not fits(eqn):
        return False
    windows, groups = as_2d(eqn.attrs["windows"]), eqn.attrs["groups"]
    y, x = eqn.args
    out = eqn.outs[0]
    vector = vector_for(out.type.dtype)
    sizes = x.type.shape[0], groups, x.type.shape[1] // groups, y.type.shape[1] // groups
    (x_operand, x_strides), (y_operand, y_strides) = _operand(lowering, x), _operand(lowering, y)
    if windows.kernel == (1, 1) and not windows.is_padded:
        windows, x_strides, y_strides = _flattened_pixels(windows, x_strides, y_strides)
    correlation = Correlation(*sizes, *(_forward_axis(windows, dim) for dim in (0, 1)))
    gradient = WeightGradient(*sizes, *(_window_axis(windows, dim) for dim in (0, 1)))
    work = y.type.numel * prod(out.type.shape[1:]) // 8
    algorithms = _weight_grad_algorithms(vector, correlation, gradient, x_strides, y_strides)
    algorithm = _cheapest_weight_grad(vector, correlation, gradient, algorithms)
    if algorithm == "batch_lanes":
        vectors = WeightGradTiling.choose(vector, correlation).vectors
        packed = [
            _packed_batch_lanes(
                lowering, vector, output_image(correlation), y_operand, y_strides, vectors
            ),
            _packed_batch_lanes(
                lowering, vector, input_image(correlation), x_operand, x_strides, vectors
            ),
        ]
        lowering.add_kernel(
            eqn.op.name, batch_lanes_weight_grad_kernel(vector, correlation), packed, [out], work
        )
        return True
    kernel, nbytes, total = _weight_grad_kernels(
        vector, correlation, gradient, x_strides, y_strides, algorithm
    )
    again = None
    if algorithm == "winograd":
        again = _weight_grad_kernels(vector, correlation, gradient, x_strides, y_strides, "im2col")
        nbytes = max(nbytes, again[1])
    sums = out if total is None else lowering.scratch(nbytes, f"{eqn.op.name} sums")
    lowering.add_kernel(eqn.op.name, kernel, [y_operand, x_operand], [sums], work)
    if total is not None:
        lowering.add_kernel(f"{eqn.op.name} sum", total, [sums], [out])
    if again is not None:
        kernel, _, total = again
        assert total is not None  # three taps in a row: the sums are no gradient
        measured = measured_weight(vector, out.type.shape, _contiguous_strides(out.type.shape))
        found = _magnitudes(lowering, eqn.op.name, vector, out, measured)
        kernel = unless_finite(vector, kernel, measured, 3)
        total = unless_finite(vector, total, measured, 2)
        name = f"{eqn.op.name} unless finite"
        lowering.add_kernel(name, kernel, [found, y_operand, x_operand], [sums])
        lowering.add_kernel(name, total, [found, sums], [out])
    return True


def _weight_grad_kernels(
    vector: Vector,
    correlation: Correlation,
    gradient: WeightGradient,
    x: Strides,
    y: Strides,
    algorithm: str,
) -> tuple[Kernel, int, Kernel | None]:
    """The kernel that computes partial sums, their bytes, and the kernel that reduces them to the
    weight gradient, unless they already are the gradient."""
    if algorithm == "winograd":
        kernel = winograd_weight_grad_kernel(vector, gradient, x, y)
        nbytes = winograd_weight_grad_sum_bytes(vector, gradient)
        return kernel, nbytes, winograd_weight_grad_sum_kernel(vector, gradient)
    if algorithm == "dot":
        kernel = dot_kernel(vector, correlation, x, y)
        return kernel, dot_sum_bytes(vector, correlation), dot_sum_kernel(vector, correlation)
    kernel = im2col_kernel(vector, gradient, x, y)
    is_gradient = sums_are_gradient(vector, gradient)
    total = None if is_gradient else im2col_sum_kernel(vector, gradient)
    return kernel, im2col_sum_bytes(vector, gradient), total


def _weight_grad_algorithms(
    vector: Vector, correlation: Correlation, gradient: WeightGradient, x: Strides, y: Strides
) -> list[str]:
    """The algorithms that support a weight gradient: dot products with pixel lanes (dot), a matrix
    product over pixels (im2col), batch lanes, or Winograd."""
    algorithms = ["dot", "im2col"]
    if supports_winograd_weight_grad(vector, gradient, x, y):
        algorithms.append("winograd")
    if supports_batch_lanes_weight_grad(vector, correlation, x, y):
        algorithms.append("batch_lanes")
    return algorithms


def _cheapest_weight_grad(
    vector: Vector, correlation: Correlation, gradient: WeightGradient, algorithms: Sequence[str]
) -> str:
    """The algorithm with the fewest estimated cycles."""
    return min(
        algorithms,
        key=lambda algorithm: _weight_grad_cycles(vector, correlation, gradient, algorithm),
    )


def _weight_grad_cycles(
    vector: Vector, correlation: Correlation, gradient: WeightGradient, algorithm: str
) -> float:
    """Estimated cycles of a pixel of y."""
    if algorithm == "winograd":
        return winograd_weight_grad_cycles(vector, gradient)
    if algorithm == "batch_lanes":
        return WeightGradTiling.choose(vector, correlation).cycles(vector, correlation)
    if algorithm == "dot":
        return dot_cycles(vector, correlation)
    return im2col_cycles(vector, gradient)


def _flattened_pixels(windows: Windows, x: Strides, y: Strides) -> tuple[Windows, Strides, Strides]:
    """Windows of one element as those of a dense image, with longer rows of pixels if both images
    are contiguous."""
    (row_stride, column_stride), (rows, columns) = windows.stride, windows.counts
    x = x._replace(row=x.row * row_stride, column=x.column * column_stride)
    if all(strides.row == columns * strides.column for strides in (x, y)):
        pixels = rows * columns
        columns = max(n for n in range(1, min(pixels, _LONGEST_ROW) + 1) if pixels % n == 0)
        rows = pixels // columns
        x, y = (strides._replace(row=columns * strides.column) for strides in (x, y))
    return Windows((rows, columns), (1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1)), x, y


def _window_axis(windows: Windows, dim: int) -> WindowAxis:
    return WindowAxis(
        windows.size[dim], windows.counts[dim], windows.kernel[dim], windows.stride[dim],
        windows.dilation[dim], windows.padding[dim][0],
    )  # fmt: skip
