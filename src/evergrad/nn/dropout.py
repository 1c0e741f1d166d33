"""Layers that drop parts of their input in training."""

from __future__ import annotations

from evergrad.core.tensor import Tensor
from evergrad.nn import functional as F
from evergrad.nn.module import TensorModule


class _Dropout(TensorModule):
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """Single numbers become zero, the rest grow to make up for them."""

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_Dropout):
    """Whole channels of (N, C, L) become zero.

    Args:
        p: chance of each channel; default 0.5
        inplace: write the result to the input; default ``False``

    Only while training; ``eval()`` gives the input. What stays is scaled by ``1 / (1 - p)``.

    >>> nn.Dropout1d(1.0)(eg.ones(1, 2, 3))
    tensor([[[0., 0., 0.],
             [0., 0., 0.]]])
    >>> nn.Dropout1d().eval()(eg.ones(1, 1, 2))
    tensor([[[1., 1.]]])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_Dropout):
    """Whole channels of (N, C, H, W) become zero."""

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_Dropout):
    """Whole channels of (N, C, D, H, W) become zero.

    Args:
        p: chance of each channel; default 0.5
        inplace: write the result to the input; default ``False``

    Only while training; ``eval()`` gives the input. What stays is scaled by ``1 / (1 - p)``.

    >>> nn.Dropout3d(1.0)(eg.ones(1, 1, 1, 1, 2))
    tensor([[[[[0., 0.]]]]])
    >>> nn.Dropout3d().eval()(eg.ones(1, 1, 1, 1, 2))
    tensor([[[[[1., 1.]]]]])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_Dropout):
    """Numbers take SELU's saturation value, so that mean and spread stay.

    Args:
        p: chance of each number; default 0.5
        inplace: write the result to the input; default ``False``

    Only while training; ``eval()`` gives the input.

    >>> _ = eg.manual_seed(0)
    >>> x = eg.randn(10000)
    >>> abs(nn.AlphaDropout()(x).std() - 1) < 0.1
    tensor(True)
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(_Dropout):
    """Alpha dropout of whole channels.

    Args:
        p: chance of each channel; default 0.5
        inplace: write the result to the input; default ``False``

    Only while training; ``eval()`` gives the input.

    >>> x = eg.ones(1, 2, 3)
    >>> eg.equal(nn.FeatureAlphaDropout().eval()(x), x)
    True
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.feature_alpha_dropout(input, self.p, self.training)
