"""Weights of linear layers and embeddings in fewer bytes: int8 per output channel, or bfloat16.

int8 keeps ``round(weight / scale)`` with one scale for each output, the largest weight of the row
divided by 127. Products are computed in float32. A quantized model is for inference: nothing of it
is a parameter.
"""

# Modules called give Any, and so do methods of tensors, which are attached at run time.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Literal

import evergrad as eg
from evergrad import nn
from evergrad.models.gpt import GPT
from evergrad.models.model import require
from evergrad.nn import functional as F

Weights = Literal["float32", "bfloat16", "int8"]


class SmallWeight(nn.Module):
    """A matrix (outputs, inputs) as int8 with a scale for each row, or as bfloat16 without."""

    def __init__(self, weight: eg.Tensor, kind: Weights) -> None:
        super().__init__()
        weight = weight.detach()
        if kind == "bfloat16":
            self.register_buffer("weight", weight.bfloat16())
            self.register_buffer("scale", None)
            return
        largest = weight.abs().amax(1)  # (outputs)
        scale = eg.where(largest > 0, largest, 1.0) / 127
        self.register_buffer("weight", (weight / scale[:, None]).round().to(eg.int8))
        self.register_buffer("scale", scale)

    def dense(self) -> eg.Tensor:
        """The matrix that products are computed with."""
        return (
            self.weight.float() if self.scale is None else self.weight.float() * self.scale[:, None]
        )


class SmallLinear(SmallWeight):
    """A linear layer with small weights.

    Compiled, up to 16 rows are multiplied in one pass over the small weights, which are widened in
    registers: memory is read in a quarter or half of the bytes.
    """

    def __init__(self, weight: eg.Tensor, bias: eg.Tensor | None, kind: Weights) -> None:
        super().__init__(weight, kind)
        self.register_buffer("bias", None if bias is None else bias.detach())

    def forward(self, x: eg.Tensor) -> eg.Tensor:  # (..., inputs) -> (..., outputs)
        y = F.linear(x, self.weight.float())
        if self.scale is not None:
            y = y * self.scale
        return y if self.bias is None else y + self.bias


class SmallEmbedding(SmallWeight):
    """An embedding with small weights."""

    def forward(self, tokens: eg.Tensor) -> eg.Tensor:  # (...) -> (..., width)
        rows = self.weight[tokens].float()
        if self.scale is None:
            return rows
        # Looked up as rows, which fuse: a table of single numbers would be a call of its own.
        return rows * self.scale[:, None].expand(self.weight.shape)[tokens]


def quantize(model: GPT, kind: Weights) -> GPT:
    """Replace the weights of a GPT in place; biases, norms and positions stay as they are."""
    require(
        kind in ("float32", "bfloat16", "int8"),
        f"weights cannot be {kind!r}",
        "choose float32, bfloat16 or int8",
    )
    if kind == "float32":
        return model
    scored = model.tokens.weight if model.head is None else model.head.weight
    head = SmallLinear(scored, None, kind)
    for block in model.blocks:
        for part in (block.attention, block.feed_forward):
            for name, layer in list(part.named_children()):
                if isinstance(layer, nn.Linear):
                    setattr(part, name, SmallLinear(layer.weight, layer.bias, kind))
    if model.config.tie:
        # One matrix embeds and scores; there is one copy of it.
        tokens = SmallEmbedding(eg.zeros(1, 1), kind)
        tokens.weight, tokens.scale = head.weight, head.scale
    else:
        tokens = SmallEmbedding(model.tokens.weight, kind)
    setattr(model, "tokens", tokens)  # noqa: B010 - of another type than it was
    setattr(model, "head", head)  # noqa: B010
    return model.train(model.training)
