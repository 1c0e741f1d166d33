"""Samples of convolution: all three rows of its family, in one to three dimensions."""

from typing import Any

import numpy as np

from evergrad.core.bind import bind
from evergrad.core.tensor import Tensor
from evergrad.ops.rows.conv import CONV_WEIGHT
from evergrad.ops.rows.pool.geometry import Windows
from evergrad.testing.samples import Array, complex_normal, normal, sample


def _reference(x: Array, w: Array, *, stride: int, padding: int, dilation: int) -> Array:
    """A convolution of one dimension, element by element."""
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding)))
    reach = dilation * (w.shape[2] - 1) + 1
    starts = range(0, x.shape[2] - reach + 1, stride)
    columns = [np.einsum("nck,ock->no", x[:, :, s : s + reach : dilation], w) for s in starts]
    return np.stack(columns, 2)


def _conv(name: str, x: tuple[int, ...], w: tuple[int, ...], label: str, **options: object) -> None:
    row = "conv_input" if "transpose" in name else "conv"
    sample(row, lambda ns, x, w: getattr(ns.nn.functional, name)(x, w, **options),
           normal(*x), normal(*w, seed=1), label=label)  # fmt: skip


sample("conv", lambda ns, x, w: ns.conv1d(x, w, stride=2, padding=1, dilation=2),
       normal(2, 2, 7), normal(3, 2, 2, seed=1),
       reference=lambda x, w: _reference(x, w, stride=2, padding=1, dilation=2),
       label="reference")  # fmt: skip
_conv("conv1d", (1, 2, 5), (3, 2, 3), "1d")
_conv("conv2d", (2, 2, 3, 4), (2, 2, 2, 3), "2d")
_conv("conv3d", (1, 1, 3, 2, 3), (2, 1, 2, 2, 2), "3d")
_conv("conv2d", (1, 1, 5, 4), (2, 1, 3, 2), "strided", stride=(2, 1), padding=(1, 0))
_conv("conv2d", (1, 1, 5, 5), (1, 1, 2, 2), "dilated", dilation=(2, 3))
_conv("conv2d", (1, 4, 3, 3), (2, 2, 2, 2), "groups", groups=2)
_conv("conv1d", (2, 2, 4), (4, 1, 3), "depthwise", groups=2, padding=1)
_conv("conv2d", (2, 3, 2, 2), (2, 3, 1, 1), "pointwise")
_conv("conv1d", (1, 2, 4), (2, 2, 2), "same", padding="same")
_conv("conv1d", (2, 5), (3, 2, 3), "unbatched")
_conv("conv1d", (0, 2, 5), (3, 2, 3), "no-samples")
sample("conv", lambda ns, x, w: ns.conv1d(x, w, padding=1), complex_normal(1, 2, 4),
       complex_normal(2, 2, 3, seed=2), dtypes=(), label="complex")  # fmt: skip
sample("conv", lambda ns, x, w, b: ns.conv1d(x, w, b), normal(2, 2, 4), normal(3, 2, 2, seed=1),
       normal(3, seed=2), label="bias")  # fmt: skip
sample("conv", lambda ns, x, w: ns.conv2d(x.transpose(2, 3), w.transpose(0, 1)),
       normal(1, 2, 4, 3), normal(2, 3, 2, 2, seed=1), label="transposed")  # fmt: skip

_conv("conv_transpose1d", (1, 2, 4), (2, 3, 3), "1d")
_conv("conv_transpose2d", (1, 2, 2, 3), (2, 2, 2, 2), "2d")
_conv("conv_transpose3d", (1, 1, 2, 2, 2), (1, 1, 2, 2, 2), "3d")
_conv("conv_transpose2d", (1, 2, 2, 2), (2, 1, 3, 2), "strided", stride=(2, 3), padding=1)
_conv("conv_transpose1d", (1, 2, 3), (2, 2, 3), "longer", stride=2, padding=1, output_padding=1)
_conv("conv_transpose1d", (1, 1, 4), (1, 2, 2), "dilated", dilation=3, output_padding=2)
_conv("conv_transpose1d", (2, 4, 3), (4, 1, 2), "groups", groups=2)
_conv("conv_transpose2d", (1, 1, 2, 3), (1, 3, 2, 2), "more-outputs")
sample("conv_input", lambda ns, x, w: ns.conv_transpose1d(x, w, stride=2),
       complex_normal(1, 2, 3), complex_normal(2, 2, 2, seed=2), dtypes=(),
       label="complex")  # fmt: skip


def _conv_weight(
    y: tuple[int, ...], x: tuple[int, ...], kernel: tuple[int, ...], label: str, *,
    stride: int = 1, padding: int = 0, dilation: int = 1, groups: int = 1,
) -> None:  # fmt: skip
    """The row itself: PyTorch has it only inside its backward functions."""

    def call(ns: Any, y: Tensor, x: Tensor) -> Any:
        rank = len(kernel)
        windows = Windows(
            x.shape[2:], kernel, (stride,) * rank, ((padding, padding),) * rank, (dilation,) * rank
        )
        return bind(CONV_WEIGHT, y, x, windows=windows, groups=groups)

    sample("conv_weight", call, normal(*y), normal(*x, seed=1), torch=False, label=label)


_conv_weight((2, 3, 3), (2, 2, 5), (3,), "1d")
_conv_weight((1, 2, 2, 2), (1, 2, 3, 4), (2, 3), "2d")
_conv_weight((2, 2, 3), (2, 1, 5), (2,), "strided", stride=2, padding=1)
_conv_weight((1, 2, 3), (1, 4, 5), (2,), "groups", groups=2, dilation=2)
_conv_weight((0, 2, 3), (0, 1, 4), (2,), "no-samples")
