"""Copies of transposed tensors: the elements in their order, for all layouts and widths."""

from __future__ import annotations

import numpy as np
import pytest

import evergrad as eg
from evergrad.core.eager.copies import copy_transposed

_CASES = [
    ((256, 192), (1, 0)), ((131, 127), (1, 0)), ((16, 1024), (1, 0)), ((17, 1000), (1, 0)),
    ((3, 70, 90), (0, 2, 1)), ((3, 70, 90), (2, 0, 1)), ((3, 70, 90), (2, 1, 0)),
    ((2, 18, 19, 33), (0, 2, 3, 1)), ((2, 18, 19, 33), (0, 3, 1, 2)),
    ((2, 3, 60, 61), (1, 3, 0, 2)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "int16", "bfloat16"])
@pytest.mark.parametrize("shape, order", _CASES)
def test_elements_in_order(shape: tuple[int, ...], order: tuple[int, ...], dtype: str) -> None:
    x = eg.arange(int(np.prod(shape))).reshape(shape).to(getattr(eg, dtype))
    found = x.permute(order).contiguous()
    assert found.is_contiguous()
    expected = x.float().numpy().transpose(order)
    np.testing.assert_array_equal(found.float().numpy(), expected)
    compiled = eg.compile(lambda x: x.permute(order).contiguous())(x)
    np.testing.assert_array_equal(compiled.float().numpy(), expected)


@pytest.mark.parametrize("slices", [np.s_[::2, :], np.s_[:, 5:300], np.s_[40:, 1::3], np.s_[7:, :]])
def test_parts_of_a_matrix(slices: tuple[slice, ...]) -> None:
    x = np.arange(400 * 410, dtype=np.float32).reshape(400, 410)
    np.testing.assert_array_equal(eg.from_numpy(x)[slices].t().clone().numpy(), x[slices].T)


def test_what_is_left_to_numpy() -> None:
    """Small, contiguous and repeated arrays, and those of other widths."""
    long = np.zeros((200, 200), np.float32)
    for x in (
        np.zeros((20, 20), np.float32).T, long, long[:, ::2], np.broadcast_to(long[0], (200, 200)),
        long.astype(np.int8).T, long.astype(np.complex128).T, long[:, :9].T,
    ):  # fmt: skip
        assert not copy_transposed(np.empty(x.shape, x.dtype), x)
    assert copy_transposed(np.empty((200, 200), np.float32), long.T)


def test_gradients_of_transposed_copies() -> None:
    x = eg.randn(150, 140, requires_grad=True)
    weight = eg.randn(140, 150)
    (x.t().contiguous() * weight).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), weight.numpy().T)
