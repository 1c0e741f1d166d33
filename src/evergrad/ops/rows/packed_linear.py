"""A linear layer whose weight is packed for products of few rows: its row of the op table.

A weight of ``outputs`` x ``inputs`` is packed as ``[panels, inputs, PANEL]``: a panel has ``PANEL``
outputs, of which those after the last are zero, and is read from its beginning to its end. Its
elements are as wide as those of X or narrower. Nothing of it has a derivative.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind
from evergrad.core.families import opaque
from evergrad.core.op import NONDIFFERENTIABLE
from evergrad.core.row_facts import AutocastPolicy, lowered
from evergrad.core.shapes import TensorType, tensor_type
from evergrad.core.tensor import Array, Tensor
from evergrad.errors import ShapeError

PANEL = 32  # outputs side by side: two registers of AVX-512, four of AVX2
PACKABLE = (dtypes.float32, dtypes.bfloat16, dtypes.int8)


def _type(x: TensorType, weight: TensorType, *, outputs: int) -> TensorType:
    panels = -(-outputs // PANEL)
    if not x.shape or weight.shape != (panels, x.shape[-1], PANEL):
        raise ShapeError(
            f"packed_linear(): {list(x.shape)} and a weight of {list(weight.shape)} do not give "
            f"{outputs} outputs"
        )
    if not x.dtype.is_floating_point or weight.dtype not in (*PACKABLE, x.dtype):
        raise TypeError(f"packed_linear(): {x.dtype} is not multiplied by {weight.dtype}")
    return tensor_type((*x.shape[:-1], outputs), x.dtype)


def _eval(
    x: np.ndarray[Any, np.dtype[np.floating]],
    weight: np.ndarray[Any, np.dtype[np.floating]],
    *,
    outputs: int,
) -> Array:
    accurate = np.float64 if x.dtype == np.float64 else np.float32
    wide = weight.astype(accurate).swapaxes(1, 2).reshape(-1, weight.shape[1])[:outputs]
    found: Array = np.matmul(x.astype(accurate), wide.T).astype(x.dtype)
    return found


PACKED_LINEAR = opaque(
    "packed_linear", _eval, _type, NONDIFFERENTIABLE, emit=lowered("kernels.gemm.packed"),
    autocast=AutocastPolicy.KEEP, doc="x @ weight^T, with a weight packed in panels of outputs.",
)  # fmt: skip


def packed_linear(x: Tensor, weight: Tensor, outputs: int) -> Tensor:
    """``x @ weight^T`` of ``[..., inputs]`` and a packed weight of so many outputs."""
    return bind(PACKED_LINEAR, x, weight, outputs=outputs)  # type: ignore[no-any-return]
