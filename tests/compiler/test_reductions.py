"""The kernel that folds partial results."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from evergrad.compiler.codegen.reductions import combine_partials
from evergrad.compiler.native import jit
from evergrad.core import dtypes
from evergrad.core.row_facts import Combine

_GUARD = 77
_NUMPY: dict[str, Any] = {"sum": np.add, "amax": np.maximum, "amin": np.minimum}


def folded(name: str, parts: Any) -> Any:
    """What the kernel makes of parts [blocks, count, length]."""
    blocks, count, length = parts.shape
    found = {np.dtype(t.np): t for t in (dtypes.float32, dtypes.float64, dtypes.int64)}[parts.dtype]
    kernel = combine_partials(Combine(name), found, count, length)
    function = jit.function_of(
        jit.addresses([kernel])[kernel.name], ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p
    )
    out = np.full(blocks * length + 32, _GUARD, parts.dtype)
    scratch = np.zeros(64, np.uint8)
    arguments = [parts.ctypes.data, out.ctypes.data, *kernel.numbers]
    words = np.array(arguments, np.int64)
    for block in reversed(range(blocks)):
        function(words.ctypes.data, block, scratch.ctypes.data)
    assert (out[blocks * length :] == _GUARD).all()
    return out[: blocks * length].reshape(blocks, length)


@pytest.mark.parametrize(("name", "dtype"), [
    ("sum", np.float32), ("sum", np.float64), ("sum", np.int64),
    ("amax", np.float32), ("amin", np.float64),
])  # fmt: skip
def test_parts_are_folded_in_their_order(name: str, dtype: Any) -> None:
    """Sums of float32 in float64, rounded once."""
    is_widened = name == "sum" and dtype is np.float32
    source = np.random.default_rng(5)
    for blocks, count, length in ((1, 8, 4096), (3, 5, 33), (2, 1, 16), (4, 7, 1), (1, 300, 15)):
        parts = (100 * source.standard_normal((blocks, count, length))).astype(dtype)
        given = parts.astype(np.float64) if is_widened else parts
        expected = given[:, 0]
        for number in range(1, count):
            expected = _NUMPY[name](expected, given[:, number])
        np.testing.assert_array_equal(folded(name, parts), expected.astype(dtype))
