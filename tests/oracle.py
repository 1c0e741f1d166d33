"""One call made in evergrad and in PyTorch: the same value, bit for bit, or the same error."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np

import evergrad

Call = Callable[[Any], Any]


def outcome(namespace: Any, call: Call) -> Any:
    """What the call gives, or the exception it raises; random draws start from the same seed."""
    namespace.manual_seed(0)
    try:
        return call(namespace)
    except Exception as error:
        return error


def array_of(value: Any) -> Any:
    """The elements of a tensor of either library."""
    if isinstance(value, evergrad.Tensor):
        return value.detach().array()
    value = value.detach()
    if str(value.dtype) == "torch.bfloat16":
        return value.view(value.new_empty(0).short().dtype).numpy().view(ml_dtypes.bfloat16)
    return value.numpy()


def assert_same(torch: ModuleType, call: Call, tolerance: float = 0.0) -> None:
    """The call ends alike in both libraries; numbers may differ by a relative tolerance."""
    expected, found = outcome(torch, call), outcome(evergrad, call)
    if isinstance(expected, Exception):
        assert isinstance(found, type(expected)), f"{found!r} instead of {expected!r}"
        return
    if isinstance(found, Exception):
        raise found
    assert_equal(found, expected, tolerance)


def assert_equal(found: Any, expected: Any, tolerance: float = 0.0) -> None:
    """A result is that of PyTorch: in kind, element type, shape, gradient flag and elements."""
    if isinstance(expected, tuple | list) and not hasattr(expected, "numel"):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            assert_equal(a, b, tolerance)
        return
    if not hasattr(expected, "requires_grad"):
        assert str(found).replace("evergrad.", "torch.") == str(expected)
        return
    assert found.dtype.name == str(expected.dtype).removeprefix("torch.")
    assert tuple(found.shape) == tuple(expected.shape)
    assert found.requires_grad == expected.requires_grad
    a, b = array_of(found), array_of(expected)
    if tolerance:
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(a, b)
