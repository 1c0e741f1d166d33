"""Dropout: elements or whole channels set to zero at random, the rest scaled to make up for it.

Draws the numbers PyTorch draws, in its order, so that equal seeds give equal masks.
"""

from __future__ import annotations

import math
import warnings

from evergrad.core.compound import Compound
from evergrad.core.dtypes import dtype
from evergrad.core.inplace import write_result
from evergrad.core.shapes import Shape
from evergrad.core.tensor import Tensor
from evergrad.ops.composite.activations import SELU_ALPHA, SELU_SCALE
from evergrad.ops.rows.creation.constants import zeros
from evergrad.ops.rows.movement.views import put_back, reshape
from evergrad.ops.rows.random.draws import memory_order
from evergrad.ops.surface.public import expose


def _check_probability(p: float) -> None:
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def _dropped(
    name: str, input: Tensor, p: float, training: bool, inplace: bool, shape: Shape, alpha: bool
) -> Tensor:
    """Drop with a mask of ``shape``; ``alpha`` keeps mean and variance of a ``selu`` output."""
    if p == 0 or not training or not input._type.numel:
        return input
    if p == 1:
        result = input * zeros((), dtype=input.dtype)
        return write_result(name, input, result) if inplace else result
    if alpha:
        kept = _mask(input, shape).bernoulli_(1 - p)
        limit = SELU_ALPHA * SELU_SCALE
        scale = 1 / math.sqrt((limit * limit * p + 1) * (1 - p))
        shift = (kept - 1) * (limit * scale) + limit * scale * p
        result = input * (kept * scale) + shift
    else:
        result = input * _noise(_mask(input, shape), p)
    return write_result(name, input, result) if inplace else result


def _mask(input: Tensor, shape: Shape) -> Tensor:
    """Room for a mask, in the order of the input: masks are drawn in the order of memory."""
    if shape != input._type.shape:
        return zeros(shape, dtype=input.dtype)
    order = memory_order(input)
    return put_back(zeros([shape[dim] for dim in order], dtype=input.dtype), order)


def _noise(mask: Tensor, p: float) -> Tensor:
    """What elements are multiplied with, drawn into a mask."""
    noise: Tensor = mask.bernoulli_(1 - p) / (1 - p)
    return noise


def dropout_noise(shape: Shape, dtype: dtype, p: float) -> Tensor | None:
    """What elements of a shape are multiplied with by ``dropout``; ``None`` if they stay."""
    if not p or not math.prod(shape):
        return None
    return zeros((), dtype=dtype) if p == 1 else _noise(zeros(shape, dtype=dtype), p)


def _channels(input: Tensor) -> Shape:
    """The shape of a mask with one element for each channel of each sample."""
    if input.ndim < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    return (*input._type.shape[:2], *(1,) * (input.ndim - 2))


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Each element set to 0 with probability ``p``, the others divided by ``1 - p``."""
    _check_probability(p)
    if isinstance(input, Compound):
        result = input.mapped("dropout", lambda x: dropout(x, p, training))
        return input.take_over(result) if inplace else result
    return _dropped("dropout", input, p, training, inplace, input._type.shape, False)


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Dropout to the limit of ``selu``, keeping mean and variance.

    Args:
        input: any shape
        p: chance of each element; default 0.5
        training: whether anything happens; default ``False``
        inplace: write the result to the input; default ``False``

    >>> F.alpha_dropout(eg.ones(2))
    tensor([1., 1.])
    """
    _check_probability(p)
    return _dropped("alpha_dropout", input, p, training, inplace, input._type.shape, True)


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """``alpha_dropout`` of whole channels.

    Args:
        input: (N, C, *)
        p: chance of each channel; default 0.5
        training: whether anything happens; default ``False``
        inplace: write the result to the input; default ``False``

    >>> F.feature_alpha_dropout(eg.ones(1, 2))
    tensor([[1., 1.]])
    """
    _check_probability(p)
    shape = _channels(input) if training else tuple(input._type.shape)
    return _dropped("feature_alpha_dropout", input, p, training, inplace, shape, True)


def _feature_dropout(input: Tensor, p: float, training: bool, inplace: bool) -> Tensor:
    return _dropped("feature_dropout", input, p, training, inplace, _channels(input), False)


def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Whole channels of [N, C, L] or [C, L] set to 0.

    Args:
        input: (N, C, L)
        p: chance of each channel; default 0.5
        training: whether anything happens; default ``True``
        inplace: write the result to the input; default ``False``

    >>> F.dropout1d(eg.ones(1, 2, 1), 1.0).flatten()
    tensor([0., 0.])
    """
    _check_probability(p)
    if input.ndim not in (2, 3):
        raise RuntimeError(
            f"dropout1d: Expected 2D or 3D input, but received a {input.ndim}D input. Note that "
            "dropout1d exists to provide channel-wise dropout on inputs with 1 spatial dimension, "
            "a channel dimension, and an optional batch dimension (i.e. 2D or 3D inputs)."
        )
    return _with_batch(input, input.ndim == 3, p, training, inplace)


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Whole channels of [N, C, H, W] set to 0; three dimensions are read as [N, C, L].

    Args:
        input: (N, C, H, W)
        p: chance of each channel; default 0.5
        training: whether anything happens; default ``True``
        inplace: write the result to the input; default ``False``

    >>> F.dropout2d(eg.ones(1, 2, 1, 1), 1.0).flatten()
    tensor([0., 0.])
    """
    _check_probability(p)
    if input.ndim not in (3, 4):
        _warn_rank("dropout2d", input.ndim, 2)
    if input.ndim == 3:
        warnings.warn(
            "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout "
            "behavior is desired - input is interpreted as shape (N, C, L), where C is the channel "
            "dim. To maintain the 1D channel-wise dropout behavior, please switch to using "
            "dropout1d instead.",
            UserWarning,
            stacklevel=2,
        )
    return _feature_dropout(input, p, training, inplace)


def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Whole channels of [N, C, D, H, W] or [C, D, H, W] set to 0.

    Args:
        input: (N, C, D, H, W)
        p: chance of each channel; default 0.5
        training: whether anything happens; default ``True``
        inplace: write the result to the input; default ``False``

    >>> F.dropout3d(eg.ones(1, 2, 1, 1, 1), 1.0).flatten()
    tensor([0., 0.])
    """
    _check_probability(p)
    if input.ndim not in (4, 5):
        _warn_rank("dropout3d", input.ndim, 3)
    return _with_batch(input, input.ndim != 4, p, training, inplace)


def _with_batch(input: Tensor, batched: bool, p: float, training: bool, inplace: bool) -> Tensor:
    if batched:
        return _feature_dropout(input, p, training, inplace)
    single = reshape(input, (1, *input._type.shape))
    result = _feature_dropout(single, p, training, inplace)
    return input if inplace else reshape(result, input._type.shape)


def _warn_rank(name: str, rank: int, spatial: int) -> None:
    warnings.warn(
        f"{name}: Received a {rank}-D input to {name}, which is deprecated and will result in an "
        "error in a future release. To retain the behavior and silence this warning, please use "
        f"dropout instead. Note that {name} exists to provide channel-wise dropout on inputs with "
        f"{spatial} spatial dimensions, a channel dimension, and an optional batch dimension "
        f"(i.e. {spatial + 1}D or {spatial + 2}D inputs).",
        UserWarning,
        stacklevel=3,
    )


@expose("dropout", method=False, out=False)
def _dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Each element set to 0 with probability ``p``, the others divided by ``1 - p``."""
    return dropout(input, p, train)


@expose("dropout_", method=False, out=False)
def _dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """``dropout`` in place.

    Args:
        input: what is written to
        p: chance of each element to become 0
        train: whether anything happens

    >>> eg.dropout_(eg.ones(3), 1.0, True)
    tensor([0., 0., 0.])
    """
    return dropout(input, p, train, inplace=True)


@expose("alpha_dropout", method=False, out=False)
def _alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Dropout to the limit of ``selu``, keeping mean and variance.

    Args:
        input: any shape
        p: chance of each element
        train: whether anything happens

    >>> eg.alpha_dropout(eg.ones(3), 0.5, False)
    tensor([1., 1., 1.])
    """
    return alpha_dropout(input, p, train)


@expose("feature_dropout", method=False, out=False)
def _feature_dropout_function(input: Tensor, p: float, train: bool) -> Tensor:
    """Dropout of whole channels.

    Args:
        input: (N, C, *)
        p: chance of each channel to become 0
        train: whether anything happens

    >>> eg.feature_dropout(eg.ones(1, 2, 2), 1.0, True)
    tensor([[[0., 0.],
             [0., 0.]]])
    """
    _check_probability(p)
    return _feature_dropout(input, p, train, False)
