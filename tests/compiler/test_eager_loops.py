"""Rows that eager mode evaluates by one native loop: as NumPy evaluates them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evergrad as eg
import evergrad.nn.functional as F
from evergrad.compiler.native import jit
from evergrad.core.eager import elementwise
from evergrad.core.eager.elementwise import may_use_loop
from evergrad.core.eager.fusion import eager_kernels
from evergrad.core.op import TABLE
from evergrad.core.shapes import tensor_type

pytestmark = pytest.mark.skipif(not jit.can_jit(), reason="the system lets no process make code")

_CALLS: dict[str, Callable[..., Any]] = {
    "log1p": eg.log1p,
    "expm1": eg.expm1,
    "erf": eg.erf,
    "erfc": eg.erfc,
    "erfinv": lambda x: eg.erfinv(x / 10),
    "lgamma": eg.lgamma,
    "digamma": eg.digamma,
    "softplus": F.softplus,
    "elu": F.elu,
    "leaky_relu": F.leaky_relu,
    "hardshrink": F.hardshrink,
    "hardswish": F.hardswish,
    "logaddexp": lambda x: eg.logaddexp(x, x.flip(0)),
    "remainder": lambda x: eg.remainder(x, 0.7),
    "remainder of a 0-d tensor": lambda x: eg.remainder(x, eg.tensor(0.7, dtype=x.dtype)),
    "where": lambda x: eg.where(x > 0.5, x, 0.25),
    "where with two tensors": lambda x: eg.where(x > 0.5, x, x.flip(0)),
    "clamp": lambda x: x.clamp(-0.5, 0.75),
    "hypot": lambda x: eg.hypot(x, x.flip(0)),
    "nan_to_num": lambda x: eg.nan_to_num(x / 0),
}


def _points(shape: tuple[int, ...], dtype: Any) -> Any:
    return np.random.default_rng(0).uniform(-3, 3, shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", _CALLS)
def test_values_and_gradients(name: str, dtype: Any) -> None:
    for shape in ((130,), (17, 31), (1, 1), (0, 3)):
        array = _points(shape, dtype)
        found = _value_and_gradient(_CALLS[name], array)
        with eager_kernels(False):
            expected = _value_and_gradient(_CALLS[name], array)
        rtol = 4e-6 if dtype is np.float32 else 1e-12
        for a, b in zip(found, expected, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol, atol=rtol)


def _value_and_gradient(call: Callable[..., Any], array: Any) -> list[Any]:
    x = eg.tensor(array, requires_grad=True)
    out = call(x)
    out.sum().backward()
    return [out.detach().numpy(), x.grad.numpy()]


@pytest.mark.parametrize("name", ["erf", "softplus", "where"])
def test_bits_depend_on_neither_strides_nor_size(name: str) -> None:
    """A slice, a read-only array and a large one, of which threads take chunks."""
    count = (1 << 20) + 77
    array = _points((count,), np.float32)
    call = _CALLS[name]
    whole = call(eg.tensor(array)).numpy()
    np.testing.assert_array_equal(call(eg.tensor(array[:4096])).numpy(), whole[:4096])
    before = eg.get_num_threads()
    try:
        eg.set_num_threads(1)
        np.testing.assert_array_equal(call(eg.tensor(array)).numpy(), whole)
    finally:
        eg.set_num_threads(before)
    strided = call(eg.tensor(array)[::3]).numpy()
    np.testing.assert_allclose(strided, whole[::3], rtol=4e-6, atol=4e-6)


def test_read_only_arrays() -> None:
    array = _points((1000,), np.float32)
    array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = eg.erf(eg.from_numpy(array)).numpy()
    np.testing.assert_allclose(found, eg.erf(eg.tensor(array.copy())).numpy(), rtol=4e-6)


def test_which_rows() -> None:
    """One ufunc stays with NumPy, as do integers and operands that broadcast."""
    row, single = tensor_type((1000,), eg.float32), tensor_type((1,), eg.float32)
    integers = tensor_type((1000,), eg.int64)
    number = tensor_type((), eg.float32)

    def uses(name: str, *operands: Any) -> bool:
        return may_use_loop(TABLE[name], operands, operands, (operands[0],))

    assert uses("erf", row) and uses("remainder", row, row) and uses("remainder", row, number)
    assert not uses("exp", row) and not uses("add", row, row) and not uses("pow", row, row)
    assert not uses("remainder", row, single) and not uses("remainder", integers, integers)


def test_one_kernel_for_all_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new shape compiles nothing."""
    eg.erf(eg.rand(500))
    monkeypatch.setattr(jit, "addresses", lambda kernels: pytest.fail("compiled again"))
    for count in range(501, 540):
        eg.erf(eg.rand(count))
        eg.erf(eg.rand(3, count))


_BROADCASTS = [
    ((20, 40), (1, 40)), ((20, 40), (40,)), ((20, 40), (20, 1)), ((1, 40), (20, 40)),
    ((20, 1), (20, 40)), ((20, 1), (1, 40)), ((20, 1), (40,)), ((3, 4, 40), (4, 40)),
    ((3, 4, 40), (3, 1, 1)), ((3, 4, 40), (3, 4, 1)), ((3, 4, 40), (1, 4, 1)), ((1, 1), (20, 40)),
    ((2, 3, 4, 20), (2, 3, 1, 1)), ((130,), (1,)), ((20, 3), (20, 1)), ((20, 40), (1, 1)),
    ((0, 40), (1, 40)), ((1100, 1000), (1000,)), ((1100, 1000), (1100, 1)),
]  # fmt: skip
_BINARY = (
    "add", "sub", "mul", "div", "maximum", "minimum", "fmax", "atan2", "hypot", "fmod",
    "remainder", "logaddexp", "copysign", "lt", "ge", "eq", "logical_and", "heaviside",
)  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("first, second", _BROADCASTS, ids=str)
def test_broadcast_rows_and_columns(first: Any, second: Any, dtype: Any) -> None:
    a, b = _points(first, dtype), _points(second, dtype) + dtype(0.01)
    if a.size > 3:
        a.flat[:3] = 0, np.nan, np.inf
    x, y = eg.tensor(a), eg.tensor(b)
    calls: dict[str, Callable[[], Any]] = {
        "where": lambda: eg.where(x > 0, x, y),
        "addcmul": lambda: eg.addcmul(x, x, y, value=0.5),
        **{name: lambda name=name: getattr(eg, name)(x, y) for name in _BINARY},
    }
    for name, call in calls.items():
        found = call()
        with eager_kernels(False):
            expected = call()
        assert found.dtype is expected.dtype and found.shape == expected.shape, name
        tolerance = 4e-6 if dtype is np.float32 else 1e-13
        np.testing.assert_allclose(
            found.numpy(), expected.numpy(), rtol=tolerance, atol=tolerance, err_msg=name
        )


def test_broadcast_operands_that_are_not_contiguous() -> None:
    a, b = _points((40, 20), np.float32), _points((40, 2), np.float32)
    np.testing.assert_array_equal((eg.tensor(a).t() + eg.tensor(b)[:, 1]).numpy(), a.T + b[:, 1])


def test_broadcasts_share_machine_code() -> None:
    eg.ones(20, 40) + eg.ones(40)
    before = len(elementwise._kernels)
    for n in range(17, 60):
        assert float((eg.ones(n, n + 3) + eg.ones(n + 3)).sum()) == 2 * n * (n + 3)
    assert len(elementwise._kernels) == before
