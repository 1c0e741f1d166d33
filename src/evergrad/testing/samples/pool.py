"""Samples of rows over sliding windows."""

from typing import Any

import numpy as np

from evergrad.core.bind import bind
from evergrad.core.tensor import Tensor
from evergrad.ops.rows.pool.geometry import Windows
from evergrad.ops.rows.pool.windows import ADAPTIVE_SPREAD, WINDOW_SPREAD
from evergrad.testing.samples import Array, distinct, integers, normal, sample


def _functional(name: str, *args: Any, **options: Any) -> Any:
    return lambda ns, x: getattr(ns.nn.functional, name)(x, *args, **options)


def _windows_of_two(x: Array) -> Array:
    return np.lib.stride_tricks.sliding_window_view(x, 2, -1)


# -- the largest --------------------------------------------------------------------------------

sample("max_pool", _functional("max_pool1d", 2, 1), distinct(2, 3, 5),
       reference=lambda x: _windows_of_two(x).max(-1))  # fmt: skip
sample("max_pool", _functional("max_pool2d", 2), distinct(2, 2, 4, 3), label="2d")
sample("max_pool", _functional("max_pool3d", 2, 1), distinct(1, 2, 3, 2, 3), label="3d")
sample("max_pool", _functional("max_pool2d", (3, 2), (1, 2), (1, 0)), distinct(1, 2, 4, 5),
       label="padded")  # fmt: skip
sample("max_pool", _functional("max_pool2d", 2, 1, 0, 2), distinct(1, 1, 5, 4), label="dilated")
sample("max_pool", _functional("max_pool1d", 3, 2, 1, ceil_mode=True), distinct(1, 2, 6),
       label="ceil")  # fmt: skip
sample("max_pool", _functional("max_pool2d", 1), distinct(1, 2, 2, 2), label="single")
sample("max_pool", _functional("max_pool2d", 3), distinct(1, 2, 3, 3), label="whole")
sample("max_pool", _functional("max_pool1d", 2), normal(0, 2, 4), label="empty")
sample("max_pool", _functional("max_pool2d", 2), np.zeros((1, 1, 4, 4)), smooth=False, label="ties")
sample("max_pool", _functional("max_pool2d", 2, 1), integers(-9, 9, 1, 2, 3, 3), dtypes=(),
       label="integers")  # fmt: skip

for _name, _label in (("max_pool1d", "1d"), ("max_pool2d", "2d"), ("max_pool3d", "3d")):
    sample("max_pool_places", _functional(_name, 2, 1, 1, return_indices=True),
           distinct(1, 2, *(3,) * int(_label[0])), label=_label)  # fmt: skip
sample("max_pool_places", _functional("max_pool2d", 3, 2, 1, return_indices=True),
       np.zeros((1, 1, 5, 5)), smooth=False, label="ties")  # fmt: skip
sample("max_pool_places", _functional("max_pool1d", 2, 2, 1, return_indices=True),
       np.full((1, 1, 4), -np.inf), smooth=False, label="lowest")  # fmt: skip
sample("max_pool_places", _functional("max_pool1d", 3, 1, return_indices=True),
       np.array([[[0.0, np.nan, 1.0, np.nan, 2.0, 3.0, 4.0]]]), smooth=False,
       label="nan")  # fmt: skip

sample("adaptive_max_places", _functional("adaptive_max_pool1d", 3, return_indices=True),
       distinct(2, 2, 7), label="1d")  # fmt: skip
sample("adaptive_max_places", _functional("adaptive_max_pool2d", (2, 3), return_indices=True),
       distinct(1, 2, 3, 5), label="2d")  # fmt: skip
sample("adaptive_max_places", _functional("adaptive_max_pool3d", 2, return_indices=True),
       distinct(1, 3, 2, 3, 2), label="3d")  # fmt: skip

# -- the mean of unequal windows ----------------------------------------------------------------

for _rank, _shape in ((1, (2, 2, 7)), (2, (1, 2, 3, 5)), (3, (1, 3, 2, 3, 2))):
    sample("adaptive_mean", _functional(f"adaptive_avg_pool{_rank}d", 2), normal(*_shape),
           label=f"{_rank}d")  # fmt: skip
sample("adaptive_mean", _functional("adaptive_avg_pool2d", (2, 3)), normal(2, 4, 6), label="even")
sample("adaptive_mean", _functional("adaptive_avg_pool2d", (5, 2)), normal(1, 2, 3, 2),
       label="more than there are")  # fmt: skip
sample("adaptive_mean", _functional("adaptive_avg_pool1d", 3), normal(0, 2, 4), label="empty")


def _adaptive_spread(ns: object, g: Tensor) -> object:
    return bind(ADAPTIVE_SPREAD, g, size=(4,))


sample("adaptive_spread", _adaptive_spread, normal(2, 3), torch=False,
       reference=lambda g: g @ (np.eye(3, 4) + np.eye(3, 4, 1)) / 2)  # fmt: skip

# -- the sum ------------------------------------------------------------------------------------

sample("window_sum", _functional("avg_pool1d", 2, 1), normal(2, 3, 5),
       reference=lambda x: _windows_of_two(x).mean(-1))  # fmt: skip
sample("window_sum", _functional("avg_pool2d", 2), normal(2, 2, 4, 3), label="2d")
sample("window_sum", _functional("avg_pool3d", 2, 1), normal(1, 2, 3, 2, 3), label="3d")
sample("window_sum", _functional("avg_pool2d", (3, 2), (1, 2), (1, 0)), normal(1, 2, 4, 5),
       label="padded")  # fmt: skip
sample("window_sum", _functional("avg_pool2d", 3, 2, 1, True, False), normal(1, 1, 4, 4),
       label="ceil")  # fmt: skip
sample("window_sum", _functional("avg_pool2d", 2, divisor_override=3), normal(1, 2, 4, 4),
       label="divisor")  # fmt: skip
sample("window_sum", _functional("avg_pool2d", 3), normal(2, 2, 3, 3), label="whole",
       reference=lambda x: x.mean((2, 3), keepdims=True))  # fmt: skip
sample("window_sum", _functional("avg_pool1d", 1), normal(1, 2, 3), label="single")
sample("window_sum", _functional("avg_pool1d", 2), normal(0, 2, 4), label="empty")


def _spread(padding: int, stride: int) -> Any:
    def call(ns: Any, g: Tensor) -> Any:
        size = (g.shape[-1] - 1) * stride + 3 - 2 * padding
        windows = Windows((size,), (3,), (stride,), ((padding, padding),), (1,))
        return bind(WINDOW_SPREAD, g, windows=windows)

    return call


sample("window_spread", _spread(0, 1), normal(2, 3), torch=False, label="overlapping",
       reference=lambda g: np.stack([np.convolve(row, np.ones(3)) for row in g]))  # fmt: skip
sample("window_spread", _spread(1, 2), normal(2, 3), torch=False, label="padded")
sample("window_spread", _spread(0, 4), normal(3), torch=False, label="apart")

# -- all elements -------------------------------------------------------------------------------

sample("im2col", _functional("unfold", 2), normal(2, 2, 3, 3))
sample("im2col", _functional("unfold", (2, 3), (1, 2), (1, 2), (2, 1)), normal(1, 1, 4, 5),
       label="padded")  # fmt: skip
sample("im2col", _functional("unfold", 2, stride=2), normal(2, 4, 4), label="unbatched")
sample("col2im", _functional("fold", (3, 3), 2), normal(2, 8, 4))
sample("col2im", _functional("fold", (3, 4), (2, 3), (1, 2), (1, 2), (2, 1)), normal(1, 6, 8),
       label="padded")  # fmt: skip
sample("col2im", _functional("fold", 4, 2, stride=2), normal(8, 4), label="unbatched")
