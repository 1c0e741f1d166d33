"""Windows of images as columns of a matrix, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from evergrad.core.bind import bind
from evergrad.core.shapes import Shape
from evergrad.core.tensor import Tensor
from evergrad.errors import ShapeError
from evergrad.ops.rows.movement.views import owned, reshape
from evergrad.ops.rows.pool.geometry import Windows, per_dim
from evergrad.ops.rows.pool.windows import COL2IM, IM2COL

if TYPE_CHECKING:
    from evergrad.core.types import Ints


def _column_windows(
    size: Shape, kernel_size: Ints, dilation: Ints, padding: Ints | str, stride: Ints
) -> Windows:
    kernel, dilation = per_dim("kernel_size", kernel_size, 2), per_dim("dilation", dilation, 2)
    padding, stride = per_dim("padding", padding, 2), per_dim("stride", stride, 2)
    windows = Windows(size, kernel, stride, tuple((p, p) for p in padding), dilation)
    if min(windows.counts) < 1:
        raise ShapeError(
            f"Given input with spatial size {size}, kernel_size={kernel}, dilation={dilation}, "
            f"padding={padding}, calculated shape of the array of sliding blocks as "
            f"{windows.counts}, but its components must be at least one."
        )
    return windows


def unfold(
    input: Tensor, kernel_size: Ints, dilation: Ints = 1, padding: Ints | str = 0, stride: Ints = 1
) -> Tensor:
    """The windows of images as columns: [N, C * kernel, windows]."""
    if input.ndim not in (3, 4):
        raise ShapeError(
            f"Expected 3D or 4D (batch mode) tensor for input, but got: {list(input._type.shape)}"
        )
    *lead, channels, height, width = input._type.shape
    windows = _column_windows((height, width), kernel_size, dilation, padding, stride)
    columns = bind(IM2COL, input, windows=windows)
    rows = channels * math.prod(windows.kernel)
    return owned(reshape(columns, (*lead, rows, math.prod(windows.counts))), input)


def fold(
    input: Tensor, output_size: Ints | Sequence[int | None] | None, kernel_size: Ints,
    dilation: Ints = 1, padding: Ints | str = 0, stride: Ints = 1,
) -> Tensor:  # fmt: skip
    """Columns added up to images: the transpose of ``unfold``."""
    if input.ndim not in (2, 3):
        raise ShapeError(
            "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size, but got: "
            f"{list(input._type.shape)}"
        )
    size = per_dim("output_size", output_size, 2)
    windows = _column_windows(size, kernel_size, dilation, padding, stride)
    *lead, rows, blocks = input._type.shape
    window = math.prod(windows.kernel)
    if rows % window:
        raise ShapeError(
            f"Expected size of input's dimension {len(lead)} to be divisible by the product of "
            f"kernel_size, but got input.size({len(lead)})={rows} and kernel_size={windows.kernel}."
        )
    if blocks != math.prod(windows.counts):
        raise ShapeError(
            f"Given output_size={size}, kernel_size={windows.kernel}, dilation={windows.dilation}, "
            f"padding={tuple(low for low, _ in windows.padding)}, stride={windows.stride}, "
            f"expected size of input's dimension {len(lead) + 1} to match the calculated number of "
            f"sliding blocks {' * '.join(map(str, windows.counts))} = {math.prod(windows.counts)}, "
            f"but got input.size({len(lead) + 1})={blocks}."
        )
    columns = reshape(input, (*lead, rows // window, *windows.kernel, *windows.counts))
    return bind(COL2IM, columns, windows=windows)  # type: ignore[no-any-return]
