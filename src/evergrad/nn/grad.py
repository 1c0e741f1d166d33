"""Gradients of convolutions as functions, for programs that call them by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from evergrad.autograd.engine import grad
from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.nn import functional as F

Convolution = Callable[..., Tensor]


def _gradient(
    convolution: Convolution, input: Tensor, weight: Tensor, grad_output: Tensor, by_input: bool,
    options: Sequence[Any],
) -> Tensor:  # fmt: skip
    with using(grad=True):
        points = (
            input.detach().requires_grad_(by_input),
            weight.detach().requires_grad_(not by_input),
        )
        result = convolution(*points, None, *options)
        (found,) = grad(result, points[0 if by_input else 1], grad_output)
    return found


def _forms(rank: int, convolution: Convolution) -> tuple[Callable[..., Tensor], ...]:
    def of_input(
        input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: Any = 1,
        padding: Any = 0, dilation: Any = 1, groups: int = 1,
    ) -> Tensor:  # fmt: skip
        input = grad_output.new_empty(1).expand(tuple(input_size))
        options = stride, padding, dilation, groups
        return _gradient(convolution, input, weight, grad_output, True, options)

    def of_weight(
        input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: Any = 1,
        padding: Any = 0, dilation: Any = 1, groups: int = 1,
    ) -> Tensor:  # fmt: skip
        weight = grad_output.new_empty(1).expand(tuple(weight_size))
        options = stride, padding, dilation, groups
        return _gradient(convolution, input, weight, grad_output, False, options)

    for function, what in ((of_input, "input"), (of_weight, "weight")):
        function.__name__ = function.__qualname__ = f"conv{rank}d_{what}"
        function.__doc__ = f"The gradient of ``conv{rank}d`` with respect to its {what}."
    return of_input, of_weight


conv1d_input, conv1d_weight = _forms(1, F.conv1d)
conv2d_input, conv2d_weight = _forms(2, F.conv2d)
conv3d_input, conv3d_weight = _forms(3, F.conv3d)

__all__ = [
    "conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input",
    "conv3d_weight",
]  # fmt: skip
