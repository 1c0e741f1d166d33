"""Products of narrow factors as one op: their rows of the op table.

``widened_linear(x, weight)`` is ``linear(x, weight.float())`` for a weight of 8 or 16 bits. It
occurs only in graphs that :func:`.passes.widen_weights.widen_weights` has made; the kernel widens
elements in registers, so that memory is read in the weight's own size.

``wide_matmul(a, b)`` is the product of two matrices of bfloat16 in float32, which a loop after it
may add to before the result is rounded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.op import NONDIFFERENTIABLE, Op
from evergrad.core.row_facts import lowered
from evergrad.core.shapes import TensorType, tensor_type
from evergrad.ops.rows.matmul import LINEAR

# Element types whose values float32 holds exactly.
NARROW = (dtypes.int8, dtypes.uint8, dtypes.bfloat16, dtypes.float16)


def _type(x: TensorType, weight: TensorType) -> TensorType:
    found: TensorType = LINEAR.type(x, tensor_type(weight.shape, x.dtype))
    return found


def _eval(x: object, weight: Any) -> object:
    return LINEAR.eval(x, weight.astype(np.float32))


WIDENED_LINEAR = Op(
    "widened_linear", family="custom", type=_type, eval=_eval, vjp=NONDIFFERENTIABLE, jvp=None,
    batch=None, emit=lowered("kernels.gemm"), doc="x @ weight^T, with a weight of 8 or 16 bits.",
)  # fmt: skip
