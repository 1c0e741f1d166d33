"""Layers that multiply by a matrix, and the identity."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from evergrad.core.tensor import Tensor
from evergrad.nn import functional as F
from evergrad.nn import init
from evergrad.nn.module import TensorModule
from evergrad.nn.parameter import Parameter
from evergrad.ops.rows.creation.constants import empty

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike, DtypeLike


class Identity(TensorModule):
    """Gives its input back, whatever it was made with."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class Linear(TensorModule):
    """``x @ weight.T + bias``"""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: DeviceLike = None,
        dtype: DtypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight: Parameter = Parameter(
            empty(out_features, in_features, device=device, dtype=dtype)
        )
        if bias:
            self.bias: Parameter = Parameter(empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew, as the constructor does."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class NonDynamicallyQuantizableLinear(Linear):
    """A linear layer under the name PyTorch gives the one inside its attention."""


class Bilinear(TensorModule):
    """``x1 @ weight @ x2 + bias`` for each output."""

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True,
        device: DeviceLike = None, dtype: DtypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got {in1_features}")
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        self.weight: Parameter = Parameter(
            empty(out_features, in1_features, in2_features, device=device, dtype=dtype)
        )
        if bias:
            self.bias: Parameter = Parameter(empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew, as the constructor does."""
        bound = 1 / math.sqrt(self.weight.size(1))
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )
