"""Weights stored in 8 bits, for inference: a quarter of the memory of float32."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evergrad.core.tensor import Tensor, detached
from evergrad.nn import functional as F
from evergrad.nn.linear import Linear
from evergrad.nn.module import Module, TensorModule
from evergrad.ops.rows.float8 import decode_float8, encode_float8, largest

if TYPE_CHECKING:
    from evergrad.nn.parameter import Parameter


class Float8Linear(TensorModule):
    """A linear layer whose weight is stored in 8 bits, with a float32 scale for each output.

    A row is scaled so that its largest element is the largest number of the format, and rounded to
    the nearest: with ``e4m3fn`` an element is off by 1/16 of itself at most, or by 2e-6 of the
    row's largest where that is more. The weight is decoded for each call, one layer at a time.
    It has no gradient; that of the input is right.

    Args:
        linear: the layer whose weight is taken
        format: ``"e4m3fn"`` (default) or ``"e5m2"``

    >>> layer = nn.utils.Float8Linear(nn.Linear(4, 2))
    >>> layer(eg.ones(3, 4)).shape
    evergrad.Size([3, 2])
    """

    out_features: int
    in_features: int

    def __init__(self, linear: Linear, format: str = "e4m3fn") -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.format = format
        weight = detached(linear.weight).float()
        rows = weight.abs().amax(1, keepdim=True) if weight.numel() else weight.sum(1, keepdim=True)
        scale = (rows / largest(format)).where(rows > 0, 1.0)
        self.codes: Tensor
        self.scale: Tensor
        self.register_buffer("codes", encode_float8(weight / scale, format))
        self.register_buffer("scale", scale)
        self.bias: Parameter = linear.bias

    def weight(self) -> Tensor:
        """The weight in float32."""
        return decode_float8(self.codes, self.format) * self.scale

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight().to(input.dtype), self.bias)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, format={self.format}"
        )


def store_float8_(module: Module, format: str = "e4m3fn") -> Module:
    """Replace the linear layers of a module by such that store their weights in 8 bits, in place.

    Layers whose weight other modules share, and subclasses of ``Linear``, are left as they are.

    >>> model = nn.utils.store_float8_(nn.Sequential(nn.Linear(32, 32)).eval())
    >>> type(model[0]).__name__
    'Float8Linear'
    """
    owners: dict[int, int] = {}
    for owner in module.modules():
        for parameter in owner.parameters(recurse=False):
            owners[id(parameter)] = owners.get(id(parameter), 0) + 1
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is Linear and owners[id(child.weight)] == 1:
                setattr(parent, name, Float8Linear(child, format))
    return _stored(module, owners, format)


def _stored(module: Module, owners: dict[int, int], format: str) -> Module:
    if type(module) is Linear and owners[id(module.weight)] == 1:
        return Float8Linear(module, format)
    return module
