"""Numbers of 8 bits as they are stored: codes of one byte, decoded to float32 when they are used.

There is no 8-bit element type to compute with. A tensor of codes has the type ``uint8``; which
format they have is an attribute of the row that decodes them.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind
from evergrad.core.families import opaque
from evergrad.core.op import NONDIFFERENTIABLE
from evergrad.core.row_facts import AutocastPolicy, numpy_evaluates
from evergrad.core.shapes import TensorType, tensor_type
from evergrad.core.tensor import Tensor, from_array
from evergrad.errors import DTypeError

FORMATS: dict[str, Any] = {
    "e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
_VALUES = {
    name: np.arange(256, dtype=np.uint8).view(format).astype(np.float32)
    for name, format in FORMATS.items()
}


def largest(format: str) -> float:
    """The largest finite number of a format."""
    return float(np.nanmax(np.where(np.isinf(_VALUES[format]), np.nan, _VALUES[format])))


def _decode_type(codes: TensorType, *, format: str) -> TensorType:
    if codes.dtype is not dtypes.uint8:
        raise DTypeError(f"decode_float8(): codes are uint8, got {codes.dtype.name}")
    return tensor_type(codes.shape, dtypes.float32)


def _batch(op: Any, args: Any, dims: Any, *, format: str) -> tuple[Tensor, int]:
    return bind(op, *args, format=format), dims[0]


DECODE_FLOAT8 = opaque(
    "decode_float8", lambda codes, *, format: _VALUES[format][codes], _decode_type,
    NONDIFFERENTIABLE, batch=_batch, emit=numpy_evaluates("one lookup for each byte"),
    autocast=AutocastPolicy.KEEP, doc="Numbers of 8 bits, stored as bytes, in float32.",
)  # fmt: skip


def decode_float8(codes: Tensor, format: str = "e4m3fn") -> Tensor:
    """The numbers that bytes stand for."""
    _check_format(format)
    return bind(DECODE_FLOAT8, codes, format=format)  # type: ignore[no-any-return]


def encode_float8(x: Tensor, format: str = "e4m3fn") -> Tensor:
    """The nearest numbers of 8 bits, as bytes; beyond the largest the format has, that one."""
    _check_format(format)
    array = x.detach().float().numpy()
    limit = largest(format)
    rounded = np.clip(array, -limit, limit).astype(FORMATS[format])
    return from_array(rounded.view(np.uint8))


def _check_format(format: str) -> None:
    if format not in FORMATS:
        raise ValueError(f"8-bit formats are {sorted(FORMATS)}, got {format!r}")
