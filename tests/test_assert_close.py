"""``evergrad.testing.assert_close`` passes, fails and says the same as PyTorch's."""

from __future__ import annotations

import math
from collections import OrderedDict
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad

NAN, INF = math.nan, math.inf

# name: (actual and expected from a library, options)
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "equal": (lambda t: (t.tensor([1.0, 2.0]), t.tensor([1.0, 2.0])), {}),
    "within tolerance": (lambda t: (t.tensor([1.0, 2.0]), t.tensor([1.0, 2.000001])), {}),
    "floats": (lambda t: (t.tensor([1.0, 2, 3]), t.tensor([1.0, 4, 5])), {}),
    "NaN in one": (lambda t: (t.tensor([1.0, 2, NAN]), t.tensor([1.0, 4, 5])), {}),
    "NaN in both": (lambda t: (t.tensor([1.0, NAN]), t.tensor([1.0, NAN])), {}),
    "equal NaN": (lambda t: (t.tensor([1.0, NAN]), t.tensor([1.0, NAN])), {"equal_nan": True}),
    "infinities": (lambda t: (t.tensor([1.0, INF]), t.tensor([1.0, -INF])), {}),
    "expected zero": (lambda t: (t.tensor([0.1, INF]), t.tensor([0.0, INF])), {}),
    "0-d": (lambda t: (t.tensor(1.0), t.tensor(1.1)), {}),
    "integers": (lambda t: (t.tensor([1, 2, 3]), t.tensor([1, 2, 4])), {}),
    "booleans": (lambda t: (t.tensor([True, False]), t.tensor([True, True])), {}),
    "complex": (lambda t: (t.tensor([1.0 + 2j, 2]), t.tensor([1.0, 2.5j])), {}),
    "float16": (lambda t: (_low(t, "float16", 2.0), _low(t, "float16", 2.5)), {}),
    "bfloat16": (lambda t: (_low(t, "bfloat16", 2.0), _low(t, "bfloat16", 2.5)), {}),
    "types": (lambda t: (t.tensor([1, 2, 3]), t.tensor([1, 2, 4.0])), {}),
    "types allowed": (
        lambda t: (t.tensor([1, 2, 3]), t.tensor([1, 2, 4.0])), {"check_dtype": False},
    ),
    "boolean and integer": (
        lambda t: (t.tensor([True, False]), t.tensor([1, 0])), {"check_dtype": False},
    ),
    "shapes": (lambda t: (t.tensor([1.0, 2]), t.tensor([1.0, 2, 3])), {}),
    "strides": (
        lambda t: (t.ones(2, 3), t.ones(3, 2).t()), {"check_stride": True},
    ),
    "sequence": (lambda t: ([t.tensor([1.0]), 3.0], (t.tensor([1.0]), 3.1)), {}),
    "lengths": (lambda t: ([1.0, 2.0], [1.0]), {}),
    "nested": (lambda t: ({"a": 1, "b": {"c": [1, 2]}}, {"a": 1, "b": {"c": [1, 3]}}), {}),
    "mappings": (lambda t: (OrderedDict(a=1, b=2.0), {"b": 2.0, "a": 1}), {}),
    "keys": (lambda t: ({"a": 1}, {"b": 1}), {}),
    "numbers": (lambda t: (1e-9, 1e-10), {"rtol": 0, "atol": 0}),
    "number types": (lambda t: (1.0, 1), {}),
    "number types allowed": (lambda t: (1.0, 1), {"check_dtype": False}),
    "half a tolerance": (lambda t: (1.0, 1.0), {"rtol": 0}),
    "None": (lambda t: (None, 1), {}),
    "Python booleans": (lambda t: (True, False), {}),
    "strings": (lambda t: ("a", "a"), {}),
    "arrays": (lambda t: (np.array([1.0, 2]), np.array([1.0, 2.5])), {}),
    "NumPy numbers": (lambda t: (np.float32(1), np.float32(2)), {}),
    "message": (lambda t: (1.0, 2.0), {"msg": "of my own"}),
    "message made": (lambda t: ([1.0], [2.0]), {"msg": lambda text: f"see: {text}"}),
}  # fmt: skip


def _low(library: Any, name: str, value: float) -> Any:
    return library.tensor([1.0, value], dtype=getattr(library, name))


def _outcome(library: Any, make: Any, options: dict[str, Any]) -> tuple[str, str] | None:
    try:
        library.testing.assert_close(*make(library), **options)
    except Exception as error:
        text = str(error).replace("torch.", "").replace("evergrad.", "")
        return type(error).__name__, text
    return None


@pytest.mark.parametrize("name", CASES)
def test_says_what_torch_says(name: str, torch: ModuleType) -> None:
    make, options = CASES[name]
    assert _outcome(evergrad, make, options) == _outcome(torch, make, options)


def test_unrelated_types_are_refused() -> None:
    with pytest.raises(TypeError, match="No comparison pair was able to handle inputs of type"):
        evergrad.testing.assert_close(evergrad.ones(2), [1.0, 1.0])


def test_history_does_not_matter() -> None:
    x = evergrad.ones(2, requires_grad=True)
    evergrad.testing.assert_close(x * 2, evergrad.full((2,), 2.0))
