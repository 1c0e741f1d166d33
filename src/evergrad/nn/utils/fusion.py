"""A batch norm in evaluation mode taken into the layer before it."""

from __future__ import annotations

import copy
from typing import Any

from evergrad.core.tensor import Tensor
from evergrad.nn.parameter import Parameter
from evergrad.ops.rows.creation.constants import ones_like, zeros_like


def fuse_conv_bn_weights(
    conv_w: Tensor, conv_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float,
    bn_w: Tensor | None, bn_b: Tensor | None, transpose: bool = False,
) -> tuple[Parameter, Parameter]:  # fmt: skip
    """The weight and bias of a convolution that does what it and the norm did.

    Args:
        conv_w, conv_b: weight, and bias or ``None``, of the convolution
        bn_rm, bn_rv, bn_eps: mean, variance and epsilon of the norm
        bn_w, bn_b: its factor and summand, or ``None``
        transpose: whether the convolution is a transposed one; default ``False``

    >>> one = eg.ones(3)
    >>> w, b = nn.utils.fuse_conv_bn_weights(eg.ones(3, 2, 1), None, one, one, 0.0, None, None)
    >>> w.shape, b.detach()
    (evergrad.Size([3, 2, 1]), tensor([-1., -1., -1.]))
    """
    bias = zeros_like(bn_rm) if conv_b is None else conv_b
    scale = (bn_rv + bn_eps).rsqrt() * (ones_like(bn_rm) if bn_w is None else bn_w)
    shape = [1] * conv_w.ndim
    shape[1 if transpose else 0] = -1
    weight = (conv_w * scale.reshape(shape)).to(conv_w.dtype)
    shifted = (bias - bn_rm) * scale + (zeros_like(bn_rm) if bn_b is None else bn_b)
    return (
        Parameter(weight, conv_w.requires_grad),
        Parameter(shifted.to(conv_w.dtype if conv_b is None else conv_b.dtype), bias.requires_grad),
    )


def fuse_linear_bn_weights(
    linear_w: Tensor, linear_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float,
    bn_w: Tensor | None, bn_b: Tensor | None,
) -> tuple[Parameter, Parameter]:  # fmt: skip
    """The weight and bias of a linear layer that does what it and the norm did.

    Args:
        linear_w, linear_b: weight, and bias or ``None``, of the layer
        bn_rm, bn_rv, bn_eps: mean, variance and epsilon of the norm
        bn_w, bn_b: its factor and summand

    >>> one = eg.ones(3)
    >>> w, b = nn.utils.fuse_linear_bn_weights(eg.ones(3, 2), one, one, one, 0.0, one, one)
    >>> w.shape, b.detach()
    (evergrad.Size([3, 2]), tensor([1., 1., 1.]))
    """
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)


def _fused(layer: Any, bn: Any, *options: Any) -> object:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("bn.running_mean and bn.running_var must not be None")
    made = copy.deepcopy(layer)
    made.weight, made.bias = fuse_conv_bn_weights(
        made.weight, made.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias,
        *options,
    )  # fmt: skip
    return made


def fuse_conv_bn_eval(conv: object, bn: object, transpose: bool = False) -> Any:
    """A convolution that does what it and the batch norm behind it did.

    Args:
        conv: a convolution, in evaluation mode
        bn: the batch norm of its results, in evaluation mode
        transpose: whether the convolution is a transposed one; default ``False``

    >>> conv, bn = nn.Conv2d(2, 3, 3).eval(), nn.BatchNorm2d(3).eval()
    >>> fused, x = nn.utils.fuse_conv_bn_eval(conv, bn), eg.ones(1, 2, 4, 4)
    >>> eg.allclose(fused(x), bn(conv(x)), atol=1e-6)
    True
    """
    return _fused(conv, bn, transpose)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A linear layer that does what it and the batch norm behind it did.

    Args:
        linear: a linear layer, in evaluation mode
        bn: the batch norm of its results, in evaluation mode

    >>> linear, bn = nn.Linear(2, 3).eval(), nn.BatchNorm1d(3).eval()
    >>> fused = nn.utils.fuse_linear_bn_eval(linear, bn)
    >>> eg.allclose(fused(eg.ones(4, 2)), bn(linear(eg.ones(4, 2))), atol=1e-6)
    True
    """
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1, got "
            f"linear.out_features={linear.out_features} and bn.num_features={bn.num_features}"
        )
    return _fused(linear, bn)
