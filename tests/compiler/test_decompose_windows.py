"""Sliding windows and their transposes in compiled programs: PyTorch's results and gradients,
without NumPy calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .test_decompose_depth import assert_same, normal


@pytest.mark.parametrize("extent, dim, size, step", [
    (12, 0, 4, 4), (12, 0, 3, 1), (13, 1, 5, 2), (13, 1, 2, 5), (9, 0, 9, 3), (10, 1, 1, 1),
])  # fmt: skip
def test_unfold_of_a_dimension(extent: int, dim: int, size: int, step: int) -> None:
    shape = (extent, 3) if dim == 0 else (3, extent)
    assert_same(lambda F, x: (x.unfold(dim, size, step) * 2).contiguous(), normal(*shape))


@pytest.mark.parametrize("kernel, padding, stride", [
    (3, 0, 1), (2, 0, 2), ((3, 2), (1, 2), (2, 1)), ((1, 4), 0, (3, 2)), (5, 2, 3),
])  # fmt: skip
def test_unfold_and_fold_of_images(kernel: Any, padding: Any, stride: Any) -> None:
    options = {"padding": padding, "stride": stride}
    x = normal(2, 3, 8, 9)
    assert_same(lambda F, x: F.unfold(x, kernel, **options), x)
    assert_same(lambda F, x: F.fold(F.unfold(x, kernel, **options), (8, 9), kernel, **options), x)


def test_framing_a_signal() -> None:
    x = np.random.default_rng(0).standard_normal((2, 64))
    assert_same(lambda F, x: (x.unfold(-1, 16, 4) * 3).abs().sqrt().contiguous(), x)
