"""The row of the gradient of ``max_pool``, which a pass emits and a kernel computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from evergrad.core.op import NONDIFFERENTIABLE, Op
from evergrad.core.row_facts import lowered
from evergrad.core.shapes import TensorType
from evergrad.ops.rows.indexing.scatter import SCATTER_SUM
from evergrad.ops.rows.pool.geometry import Windows
from evergrad.ops.rows.pool.windows import MAX_POOL_PLACES

if TYPE_CHECKING:
    from evergrad.core.types import Array


def _type(g: TensorType, x: TensorType, *, windows: Windows, of_relu: bool) -> TensorType:
    return x


def _eval(g: Array, x: Array, *, windows: Windows, of_relu: bool) -> object:
    rank = len(windows.size)
    argmax = MAX_POOL_PLACES.eval(x, windows=windows)
    lead = x.shape[: x.ndim - rank]
    flat = (*lead, -1)
    total = SCATTER_SUM.eval(
        g.reshape(flat), argmax.reshape(flat), dim=len(lead), shape=x.reshape(flat).shape
    )
    total = total.reshape(x.shape)
    return np.where(x <= 0, x.dtype.type(0), total) if of_relu else total


MAX_POOL_INPUT = Op(
    "max_pool_input", family="custom", type=_type, eval=_eval, vjp=NONDIFFERENTIABLE, jvp=None,
    batch=None, emit=lowered("kernels.pooling"),
    doc="The gradient of max_pool, and of relu before it.",
)  # fmt: skip
