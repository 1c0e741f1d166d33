"""Convolutions of one, two and three dimensions.

Three rows, each bilinear, each the transpose of the other two; together they close under
differentiation of any order. With an input ``x`` [N, C, ...], a weight ``w`` [O, C/groups, ...] and
an output ``y`` [N, O, ...]::

    conv         (x, w) -> y
    conv_input   (y, w) -> x      what conv's output gradient gives its input; conv_transpose
    conv_weight  (y, x) -> w      what it gives its weight

Evaluation lays the windows of a few samples out as columns and multiplies matrices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from evergrad.core.bind import bind
from evergrad.core.families import bilinear
from evergrad.core.op import Op
from evergrad.core.shapes import TensorType, tensor_type
from evergrad.core.tensor import Tensor
from evergrad.errors import DTypeError, ShapeError
from evergrad.memory import pool
from evergrad.ops.elementwise import conj
from evergrad.ops.movement import expand, movedim, reshape
from evergrad.ops.public import expose
from evergrad.ops.windows import Windows, per_dim

# Columns are made for so many samples at a time that they stay in cache.
_COLUMN_BYTES = 4 << 20


# -- types --------------------------------------------------------------------------------------


def _conv_type(x: TensorType, w: TensorType, *, windows: Windows, groups: int) -> TensorType:
    return tensor_type((x.shape[0], w.shape[0], *windows.count), x.dtype)


def _input_type(y: TensorType, w: TensorType, *, windows: Windows, groups: int) -> TensorType:
    return tensor_type((y.shape[0], w.shape[1] * groups, *windows.size), y.dtype)


def _weight_type(y: TensorType, x: TensorType, *, windows: Windows, groups: int) -> TensorType:
    return tensor_type((y.shape[1], x.shape[1] // groups, *windows.kernel), y.dtype)


# -- evaluation ---------------------------------------------------------------------------------


def _blocks(samples: int, channels: int, windows: Windows, itemsize: int) -> Iterator[slice]:
    """Samples few enough at a time for their columns."""
    each = channels * math.prod(windows.kernel) * math.prod(windows.count) * itemsize
    step = max(1, _COLUMN_BYTES // max(1, each))
    return (slice(start, min(start + step, samples)) for start in range(0, samples, step))


def _columns(x: Any, windows: Windows, groups: int) -> Any:
    """Every window as a column: [groups, channels/groups * kernel, samples * count]."""
    view = windows.view(windows.pad(x)).swapaxes(0, 1)
    rank = len(windows.size)
    view = np.moveaxis(view, 0, rank + 0)  # placeholder
    return view
