"""Samples of 8-bit numbers."""

import ml_dtypes
import numpy as np

from evergrad.ops.rows.float8 import decode_float8
from evergrad.testing.samples import sample

# Codes of finite numbers: signs, zero, subnormals, the largest.
_CODES = np.array([[0, 1, 7, 8, 56], [128, 129, 200, 126, 254]], np.uint8)
sample("decode_float8", lambda ns, codes: decode_float8(codes), _CODES, torch=False, dtypes=(),
       reference=lambda codes: codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32),
       label="e4m3fn")  # fmt: skip
sample("decode_float8", lambda ns, codes: decode_float8(codes, "e5m2"), _CODES[:, :4], torch=False,
       dtypes=(), label="e5m2",
       reference=lambda codes: np.ascontiguousarray(codes).view(ml_dtypes.float8_e5m2)
       .astype(np.float32))  # fmt: skip
