"""Calls at the edges of what is defined: values and refusals as PyTorch's.

Each case was found by random calls beside PyTorch.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad as eg

Call = Callable[[Any], Any]


def outcome(ns: Any, call: Call) -> Any:
    """The result with its type, or that there is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = call(ns)
    except (RuntimeError, IndexError, TypeError, ValueError):
        return "refused"
    if ns is eg:  # the memory is of the type that the tensor states
        assert found.numpy().dtype == found.dtype.np
    kept = found.detach()
    values = (kept.float() if kept.dtype is ns.bfloat16 else kept).numpy()
    return str(found.dtype).split(".")[-1], values


def agree(call: Call, torch: ModuleType) -> None:
    ours, theirs = outcome(eg, call), outcome(torch, call)
    if "refused" in (ours, theirs):
        assert (ours, theirs) == ("refused", "refused")
        return
    assert ours[0] == theirs[0]
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-5, atol=1e-6)


def complex_numbers(ns: Any) -> Any:
    return ns.tensor([[1 + 1j, -2.0], [0.5j, -1 - 1j]])


def matrix(ns: Any, dtype: str = "float32") -> Any:
    return ns.tensor([[3, 1, 2], [0, 5, 4]]).to(getattr(ns, dtype))


def mask(ns: Any) -> Any:
    return ns.tensor([[True, False, True], [False, False, True]])


ACTIVATIONS = ("elu", "celu", "selu", "leaky_relu", "softplus", "logsigmoid", "softshrink", "gelu",
               "hardswish", "hardsigmoid", "mish", "silu", "tanh", "sigmoid")  # fmt: skip
LOSSES = ("mse_loss", "smooth_l1_loss", "huber_loss", "l1_loss", "soft_margin_loss")

CALLS: dict[str, Call] = {
    **{
        f"{name} of complex numbers": lambda ns, name=name: getattr(ns.nn.functional, name)(
            complex_numbers(ns)
        )
        for name in ACTIVATIONS
    },
    "softmax of complex numbers": lambda ns: ns.softmax(complex_numbers(ns), 1),
    "log_softmax of complex numbers": lambda ns: ns.log_softmax(complex_numbers(ns), 1),
    "softmax in complex numbers": lambda ns: ns.softmax(matrix(ns), 1, dtype=ns.complex64),
    **{
        f"{name} of {kind}": lambda ns, name=name, make=make: getattr(ns.nn.functional, name)(
            *make(ns)
        )
        for name in LOSSES
        for kind, make in {
            "a mask": lambda ns: (matrix(ns), mask(ns)),
            "a mask and numbers": lambda ns: (mask(ns), matrix(ns)),
            "bytes": lambda ns: (matrix(ns), matrix(ns, "uint8")),
            "half": lambda ns: (matrix(ns, "bfloat16"), matrix(ns, "uint8")),
            "numbers": lambda ns: (matrix(ns), matrix(ns) * 0.5),
            "complex numbers": lambda ns: (complex_numbers(ns), complex_numbers(ns)[:1]),
        }.items()
        if (name, kind)
        not in {
            ("l1_loss", "complex numbers"),
            ("soft_margin_loss", "complex numbers"),
            ("soft_margin_loss", "a mask and numbers"),
            ("huber_loss", "a mask and numbers"),
        }
    },
    "kl_div of integers": lambda ns: ns.nn.functional.kl_div(matrix(ns), matrix(ns, "int64")),
    "hardtanh of bytes": lambda ns: ns.nn.functional.hardtanh(matrix(ns, "uint8")),
    "relu6 of bytes": lambda ns: ns.nn.functional.relu6(matrix(ns, "uint8")),
    "cosine of integers": lambda ns: ns.nn.functional.cosine_similarity(
        matrix(ns, "int64"), matrix(ns)
    ),
    "cosine of a mask": lambda ns: ns.nn.functional.cosine_similarity(matrix(ns), mask(ns)),
    "ldexp of no dimensions": lambda ns: ns.ldexp(ns.tensor(0.5), matrix(ns)),
    "ldexp of a byte": lambda ns: ns.ldexp(ns.tensor(3, dtype=ns.int8), matrix(ns)),
    "ldexp of a number": lambda ns: ns.ldexp(matrix(ns), 2),
    "ldexp of a double": lambda ns: ns.ldexp(ns.tensor(0.5, dtype=ns.float64), matrix(ns)),
    "heaviside of a number": lambda ns: ns.heaviside(matrix(ns), 2.0),
    "unflatten into nothing": lambda ns: ns.unflatten(ns.ones(1, 1), 0, ()),
    "as_strided before the start": lambda ns: ns.as_strided(ns.ones(4), (0,), (1,), -1),
    "repeats that are no integer": lambda ns: ns.ones(3).repeat_interleave(ns.tensor([2.0])),
    "an index into nothing": lambda ns: ns.zeros(0, 3)[ns.tensor([4])],
    "an index into nothing at all": lambda ns: ns.zeros(0)[ns.tensor([0])],
    "no index into nothing": lambda ns: ns.zeros(0, 3)[ns.tensor([], dtype=ns.int64)],
    "written into nothing": lambda ns: ns.zeros(0, 3).index_put((ns.tensor([4]),), ns.tensor(2.0)),
    "added to nothing": lambda ns: ns.zeros(0, 3).index_put(
        (ns.tensor([4]),), ns.tensor(2.0), accumulate=True
    ),
    "copied into nothing": lambda ns: ns.zeros(0, 3).index_copy(0, ns.tensor([0]), ns.ones(1, 3)),
    "filled into nothing": lambda ns: ns.zeros(0, 3).index_fill(0, ns.tensor([0]), 2.0),
    "gathered from nothing": lambda ns: ns.zeros(0, 3).gather(0, ns.tensor([[0, 0, 0]])),
    "scattered into nothing": lambda ns: ns.zeros(0).scatter_add(0, ns.tensor([0]), ns.ones(1)),
    "selected from nothing": lambda ns: ns.zeros(0, 3).index_select(0, ns.tensor([0])),
    "nothing is written": lambda ns: ns.zeros(2, 0).index_put((ns.tensor([1]),), ns.tensor(2.0)),
}


@pytest.mark.parametrize("name", CALLS)
def test_beside_pytorch(name: str, torch: ModuleType) -> None:
    agree(CALLS[name], torch)


REDUCED = ("sum", "prod", "cumsum", "cumprod", "nansum")
RESULTS = ("int8", "uint8", "int16", "int32", "int64", "bool", "float32", "float16", "bfloat16")


@pytest.mark.parametrize("dtype", RESULTS)
@pytest.mark.parametrize("name", REDUCED)
def test_memory_of_the_type_that_was_chosen(name: str, dtype: str, torch: ModuleType) -> None:
    """A product along a dimension in int8 was an int8 tensor over int64 memory."""
    if dtype == "bool" and name.startswith("cum"):
        return  # PyTorch has none
    for source in ("int64", "int8", "uint8", "float32"):
        for dim in (0, -1):

            def call(ns: Any, source: str = source, dim: int = dim) -> Any:
                x = ns.tensor([[100, 3, 7], [90, 90, 2]]).to(getattr(ns, source))
                return getattr(ns, name)(x, dim, dtype=getattr(ns, dtype))

            agree(call, torch)


@pytest.mark.parametrize("order", [1, 2, 3, 5, 40])
def test_determinants_of_what_is_not_finite(order: int, torch: ModuleType) -> None:
    """A matrix whose elimination ends at a NaN had the determinant 0."""
    for bad in (math.inf, -math.inf, math.nan):
        for place in ((0, 0), (0, -1), (-1, 0), (-1, -1)):
            for rest in (np.eye(order), np.zeros((order, order)), np.ones((order, order))):
                x = np.stack([rest, np.eye(order)]).astype(np.float32)
                x[0][place] = bad
                for f in ("det", "slogdet"):
                    ours = getattr(eg.linalg, f)(eg.from_numpy(x))
                    theirs = getattr(torch.linalg, f)(torch.from_numpy(x))
                    pairs = [(ours, theirs)] if f == "det" else [(ours[1], theirs[1])]
                    for mine, other in pairs:
                        assert np.isnan(mine[0].item()) == np.isnan(other[0].item()), (bad, place)
                        assert mine[1].item() == pytest.approx(other[1].item())
