"""``torch.nn.grad``: the derivatives of convolutions by their input and by their weight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from evergrad.autograd.engine import grad
from evergrad.core.tensor import Tensor
from evergrad.nn import functional as F
from evergrad.ops.rows.creation.constants import zeros

if TYPE_CHECKING:
    from evergrad.core.types import Ints

_Function = Callable[..., Tensor]


def _by_input(convolve: _Function, name: str) -> _Function:
    def derivative(
        input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: Ints = 1,
        padding: Ints | str = 0, dilation: Ints = 1, groups: int = 1,
    ) -> Tensor:  # fmt: skip
        point = zeros(*input_size, dtype=weight.dtype).requires_grad_()
        out = convolve(point, weight.detach(), None, stride, padding, dilation, groups)
        return grad([out], [point], [grad_output])[0]

    derivative.__name__ = derivative.__qualname__ = name
    derivative.__doc__ = f"The derivative of ``{name.partition('_')[0]}`` by an input of that size."
    return derivative


def _by_weight(convolve: _Function, name: str) -> _Function:
    def derivative(
        input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: Ints = 1,
        padding: Ints | str = 0, dilation: Ints = 1, groups: int = 1,
    ) -> Tensor:  # fmt: skip
        point = zeros(*weight_size, dtype=input.dtype).requires_grad_()
        out = convolve(input.detach(), point, None, stride, padding, dilation, groups)
        return grad([out], [point], [grad_output])[0]

    derivative.__name__ = derivative.__qualname__ = name
    derivative.__doc__ = f"The derivative of ``{name.partition('_')[0]}`` by a weight of that size."
    return derivative


conv1d_input: _Function = _by_input(F.conv1d, "conv1d_input")
conv2d_input: _Function = _by_input(F.conv2d, "conv2d_input")
conv3d_input: _Function = _by_input(F.conv3d, "conv3d_input")
conv1d_weight: _Function = _by_weight(F.conv1d, "conv1d_weight")
conv2d_weight: _Function = _by_weight(F.conv2d, "conv2d_weight")
conv3d_weight: _Function = _by_weight(F.conv3d, "conv3d_weight")

__all__ = [
    "conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input",
    "conv3d_weight",
]  # fmt: skip
