"""Rows of 16-bit floats that kernels compute in float32: eager mode's results, no NumPy calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.compiler.test_indexed import calls_of

import evergrad as eg
import evergrad.nn.functional as F

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "conv": lambda x: F.conv2d(x, x[:1, :, :3, :3].expand(5, -1, -1, -1) * 0.1, padding=1),
    "grouped conv": lambda x: F.conv2d(x, x[:1, :1, :3, :3].expand(4, -1, -1, -1), groups=4),
    "transposed conv": lambda x: F.conv_transpose2d(x, x[:1, :, :2, :2].expand(4, -1, -1, -1)),
    "conv3d": lambda x: F.conv3d(
        x[None], x[None, :2, :, :2, :2].expand(2, 2, 4, 2, 2).mT[:, :, :2]
    ),
    "max_pool": lambda x: F.max_pool2d(x, 2),
    "avg_pool": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "mean": lambda x: x.mean((2, 3)) + x.mean(),
    "std": lambda x: x.std((0, 2), keepdim=True) + x,
    "norm": lambda x: x.norm(dim=1) + x.norm(p=3, dim=1),
    "cumsum": lambda x: x.cumsum(1) * x.sigmoid().cumprod(1),
    "sort": lambda x: x.sort(-1).values * x.topk(2, -1).values[..., :1],
    "scatter": lambda x: x.scatter_add(3, (x > 0).long(), x),
    "rows": lambda x: x[:, :, eg.tensor([0, 2, 2])].exp(),
}


@pytest.mark.parametrize("dtype", [eg.bfloat16, eg.float16], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_in_eager_mode(name: str, dtype: Any) -> None:
    function = FUNCTIONS[name]
    values = np.random.default_rng(0).permutation(2 * 4 * 6 * 8).reshape(2, 4, 6, 8) / 200 - 1
    x = eg.tensor(values).to(dtype).requires_grad_()

    def step(x: Any) -> Any:
        y = function(x)
        return y, *eg.autograd.grad((y * y).float().mean(), x)

    compiled = eg.compile(step)
    for found, wanted in zip(compiled(x), step(x), strict=True):
        assert found.dtype is wanted.dtype
        scale = float(wanted.float().abs().max()) + 1e-6
        difference = (found.float() - wanted.float()).abs().max() / scale
        assert float(difference) < (3e-2 if dtype is eg.bfloat16 else 4e-3)
    assert calls_of(compiled) == []
