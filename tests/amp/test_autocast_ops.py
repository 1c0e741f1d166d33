"""Autocast op by op: PyTorch's element type, and its value within the rounding of bfloat16."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad
from amp.autocast_cases import CASES

# Whether each argument is given in the lower precision: none, all, all but the first.
PRECISIONS = {"float32": (False, False), "lower": (True, True), "mixed": (False, True)}


def tensors(ns: Any, shapes: Any, precision: str, lower: str) -> list[Any]:
    generator = np.random.default_rng(7)
    made = []
    for i, shape in enumerate(shapes):
        array = generator.random((4, 4) if shape == "spd" else shape).astype(np.float32) * 0.8 + 0.1
        if shape == "spd":
            array = array @ array.T + 4 * np.eye(4, dtype=np.float32)
        tensor = ns.tensor(array)
        made.append(tensor.to(getattr(ns, lower)) if PRECISIONS[precision][i > 0] else tensor)
    return made


def outcome(ns: Any, name: str, precision: str, lower: str) -> Any:
    call, shapes = CASES[name]
    ns.manual_seed(0)
    with ns.autocast("cpu", dtype=getattr(ns, lower)):
        try:
            result = call(ns, *tensors(ns, shapes, precision, lower))
        except (RuntimeError, ValueError, IndexError, NotImplementedError) as error:
            return error
    dtype = str(result.dtype).rpartition(".")[2]
    wide = ns.complex128 if result.is_complex() else ns.float64
    return dtype, np.array(result.to(wide).tolist())


# PyTorch rounds what this computes on the way, though not the result.
ROUNDED_INSIDE = {"bilinear"}

# Mixed arguments that PyTorch refuses here, evergrad promotes.
PROMOTED_HERE = {"mv", "addmv", "bilinear", "dot", "group_norm", "layer_norm"}


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", CASES)
def test_ops_compute_in_the_precision_of_torch(
    name: str, precision: str, torch: ModuleType
) -> None:
    if precision == "mixed" and len(CASES[name][1]) == 1:
        precision = "lower"
    expected = outcome(torch, name, precision, "bfloat16")
    found = outcome(evergrad, name, precision, "bfloat16")
    if isinstance(expected, Exception):
        assert isinstance(found, Exception) or name in PROMOTED_HERE, (found, expected)
        return
    assert not isinstance(found, Exception), found
    assert found[0] == expected[0]
    rounded = found[0] == "bfloat16" or precision != "float32" or name in ROUNDED_INSIDE
    tolerance = 2**-6 if rounded else 1e-5
    np.testing.assert_allclose(found[1], expected[1], rtol=tolerance, atol=tolerance)
