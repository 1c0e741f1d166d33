"""Transforms of vectors and matrices."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import evergrad
from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints
from evergrad.distributions.elementwise_transforms import PlainTransform, clipped_sigmoid
from evergrad.distributions.transform_base import Transform, check_rank
from evergrad.distributions.utils import LOG_2, tril_matrix_to_vec, vec_to_tril_matrix
from evergrad.nn.functional import logsigmoid, pad, softplus

if TYPE_CHECKING:
    pass


class SoftmaxTransform(PlainTransform):
    """Reals to shares by ``exp`` and division by the sum. Not bijective, for the sum is lost.

    Args:
        cache_size: 1 keeps the last pair of input and result, for exact inverses; default 0

    >>> t = eg.distributions.SoftmaxTransform()
    >>> x = eg.tensor([0.0, 0.0])
    >>> t(x), t.inv(t(x))
    (tensor([0.5000, 0.5000]), tensor([-0.6931, -0.6931]))
    """

    domain = constraints.real_vector
    codomain = constraints.simplex

    def _call(self, x: Tensor) -> Tensor:
        return x.softmax(-1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def forward_shape(self, shape: Sequence[int]) -> Sequence[int]:
        check_rank(shape, 1)
        return shape

    inverse_shape = forward_shape


class StickBreakingTransform(PlainTransform):
    """Reals to shares, one more than there were numbers: each takes its part of what is left.

    Args:
        cache_size: 1 keeps the last pair of input and result, for exact inverses; default 0

    >>> t = eg.distributions.StickBreakingTransform()
    >>> x = eg.tensor([0.0, 0.0])
    >>> t(x), t.inv(t(x))
    (tensor([0.3333, 0.3333, 0.3333]), tensor([ 5.9605e-08, -1.1921e-07]))
    >>> t.log_abs_det_jacobian(x, t(x))
    tensor(-3.2958)
    """

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        taken = clipped_sigmoid(x - _log_shares_left(x))
        left = (1 - taken).cumprod(-1)
        return pad(taken, [0, 1], value=1) * pad(left, [1, 0], value=1)

    def _inverse(self, y: Tensor) -> Tensor:
        shares = y[..., :-1]
        left = 1 - shares.cumsum(-1)
        left = left.clamp(min=evergrad.finfo(y.dtype).tiny)
        return shares.log() - left.log() + _log_shares_left(shares)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        x = x - _log_shares_left(x)
        return (-x + logsigmoid(x) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Sequence[int]) -> Sequence[int]:
        check_rank(shape, 1)
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Sequence[int]) -> Sequence[int]:
        check_rank(shape, 1)
        return (*shape[:-1], shape[-1] - 1)


def _log_shares_left(x: Tensor) -> Tensor:
    """How many shares follow each one, so that zeros are mapped to equal shares; its logarithm."""
    return evergrad.arange(x.shape[-1], 0, -1, dtype=x.dtype).log()


# -- matrices -----------------------------------------------------------------------------------


class LowerCholeskyTransform(PlainTransform):
    """Square matrices to lower triangular ones with a positive diagonal.

    Args:
        cache_size: 1 keeps the last pair of input and result, for exact inverses; default 0

    >>> t = eg.distributions.LowerCholeskyTransform()
    >>> x = eg.tensor([[0.0, 5.0], [2.0, 0.0]])
    >>> t(x), t.inv(t(x))
    (tensor([[1., 0.],
            [2., 1.]]), tensor([[0., 0.],
            [2., 0.]]))
    """

    domain: constraints.Constraint = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(PlainTransform):
    """Square matrices to positive definite ones, through their Cholesky factors.

    Args:
        cache_size: 1 keeps the last pair of input and result, for exact inverses; default 0

    >>> t = eg.distributions.PositiveDefiniteTransform()
    >>> t(eg.tensor([[0.0, 0.0], [2.0, 0.0]]))
    tensor([[1., 2.],
            [2., 5.]])
    """

    domain: constraints.Constraint = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(evergrad.linalg.cholesky(y))


class CorrCholeskyTransform(Transform):
    """Vectors of ``D (D - 1) / 2`` reals to Cholesky factors of D x D correlation matrices.

    The vector, squeezed by tanh, fills the triangle below the diagonal row by row; each element
    takes its part of what is left of the row's length of 1.

    Args:
        cache_size: 1 keeps the last pair of input and result, for exact inverses; default 0

    >>> t = eg.distributions.CorrCholeskyTransform()
    >>> t(eg.zeros(3))
    tensor([[1., 0., 0.],
            [0., 1., 0.],
            [0., 0., 1.]])
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        eps = evergrad.finfo(x.dtype).eps
        partial = vec_to_tril_matrix(x.tanh().clamp(-1 + eps, 1 - eps), diag=-1)
        left = (1 - partial**2).sqrt().cumprod(-1)
        ones = evergrad.eye(partial.shape[-1], dtype=x.dtype)
        return (partial + ones) * pad(left[..., :-1], [1, 0], value=1)

    def _inverse(self, y: Tensor) -> Tensor:
        left = pad(1 - (y * y).cumsum(-1)[..., :-1], [1, 0], value=1)
        part = tril_matrix_to_vec(y, diag=-1) / tril_matrix_to_vec(left, diag=-1).sqrt()
        return (part.log1p() - (-part).log1p()) / 2

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        left = 1 - (y * y).cumsum(-1)
        by_sticks = 0.5 * tril_matrix_to_vec(left, diag=-2).log().sum(-1)
        by_tanh = -2 * (x + softplus(-2 * x) - LOG_2).sum(-1)
        return by_sticks + by_tanh

    def forward_shape(self, shape: Sequence[int]) -> Sequence[int]:
        check_rank(shape, 1)
        length = shape[-1]
        size = round((1 + math.sqrt(1 + 8 * length)) / 2)
        if size * (size - 1) // 2 != length:
            raise ValueError("Input is not a flattened lower-diagonal number")
        return (*shape[:-1], size, size)

    def inverse_shape(self, shape: Sequence[int]) -> Sequence[int]:
        check_rank(shape, 2)
        if shape[-2] != shape[-1]:
            raise ValueError("Input is not square")
        size = shape[-1]
        return (*shape[:-2], size * (size - 1) // 2)
