"""Weights of a GPT packed for inference, in the layout that products of few rows read in order.

A packed layer computes what the layer it replaces computes, with float32, bfloat16 or int8 weights;
a row of it gives the same bits however many rows there are. Nothing of it is a parameter.
"""

# Modules called give Any, and so do methods of tensors, which are attached at run time.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import evergrad as eg
from evergrad import nn
from evergrad.models.gpt import GPT
from evergrad.models.quantize import SmallLinear, SmallWeight
from evergrad.ops.rows.packed_linear import PANEL, packed_linear


def pack_weight(weight: eg.Tensor) -> eg.Tensor:  # (outputs, inputs) -> (panels, inputs, PANEL)
    """The packed layout of a weight; outputs after the last are zero.

    >>> pack_weight(eg.ones(40, 3)).shape
    evergrad.Size([2, 3, 32])
    """
    outputs, inputs = weight.shape
    panels = -(-outputs // PANEL)
    padded = eg.zeros(panels * PANEL, inputs, dtype=weight.dtype)
    padded[:outputs] = weight.detach()
    return padded.view(panels, PANEL, inputs).transpose(1, 2).contiguous()


class PackedLinear(nn.Module):
    """A linear layer with a packed weight, and a scale for each output where weights are int8."""

    weight: eg.Tensor  # (panels, inputs, PANEL)
    scale: eg.Tensor | None  # (outputs)
    bias: eg.Tensor | None  # (outputs)

    def __init__(
        self, weight: eg.Tensor, scale: eg.Tensor | None = None, bias: eg.Tensor | None = None
    ) -> None:  # (outputs, inputs), (outputs), (outputs)
        super().__init__()
        self.outputs: int = weight.shape[0]
        self.inputs: int = weight.shape[1]
        self.register_buffer("weight", pack_weight(weight))
        self.register_buffer("scale", scale)
        self.register_buffer("bias", None if bias is None else bias.detach())

    def forward(self, x: eg.Tensor) -> eg.Tensor:  # (..., inputs) -> (..., outputs)
        y = packed_linear(x, self.weight, self.outputs)
        if self.scale is not None:
            y = y * self.scale
        return y if self.bias is None else y + self.bias


class PackedEmbedding(nn.Module):
    """Embeds tokens with the matrix that scores them, of which there is one copy."""

    def __init__(self, head: PackedLinear) -> None:
        super().__init__()
        self.register_buffer("weight", head.weight)
        self.register_buffer("scale", head.scale)

    def forward(self, tokens: eg.Tensor) -> eg.Tensor:  # (...) -> (..., width)
        rows = self.weight[tokens // PANEL, :, tokens % PANEL].float()
        return rows if self.scale is None else rows * self.scale[tokens][..., None]


def pack(model: GPT) -> GPT:
    """Replace the linear layers of a GPT in place; a packed model stays as it is."""
    for block in model.blocks:
        for part in (block.attention, block.feed_forward):
            for name, layer in list(part.named_children()):
                if isinstance(layer, (nn.Linear, SmallLinear)):
                    setattr(part, name, _packed(layer))
    scored: nn.Module = model.tokens if model.head is None else model.head
    if isinstance(scored, PackedLinear):
        return model
    head = _packed(scored)
    if model.config.tie:
        setattr(model, "tokens", PackedEmbedding(head))  # noqa: B010 - of another type than it was
    setattr(model, "head", head)  # noqa: B010
    return model.train(model.training)


def _packed(layer: nn.Module) -> PackedLinear:
    scale = layer.scale if isinstance(layer, SmallWeight) else None
    return PackedLinear(layer.weight, scale, getattr(layer, "bias", None))
