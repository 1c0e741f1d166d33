"""Attention among all places of a picture, for ViT and DiT; a GPT's looks back alone."""

# Modules called give Any, and so do methods of tensors, which are attached at run time.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import evergrad as eg
from evergrad import nn
from evergrad.nn import functional as F


class SelfAttention(nn.Module):
    """Every place looks at every place."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv: nn.Linear = nn.Linear(width, 3 * width)
        self.out: nn.Linear = nn.Linear(width, width)

    def forward(self, x: eg.Tensor) -> eg.Tensor:  # (B, T, C)
        B, T, C = x.shape
        q, k, v = (
            part.view(B, T, self.heads, C // self.heads).transpose(1, 2)  # (B, nh, T, hs)
            for part in self.qkv(x).split(C, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).flatten(2))  # (B, T, C)


class FeedForward(nn.Module):
    """Each place by itself."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.widen: nn.Linear = nn.Linear(width, 4 * width)
        self.out: nn.Linear = nn.Linear(4 * width, width)

    def forward(self, x: eg.Tensor) -> eg.Tensor:  # (B, T, C)
        return self.out(F.gelu(self.widen(x)))
