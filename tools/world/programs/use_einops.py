"""Rearrangements, reductions and a layer of einops, with gradients."""

import json

import torch
from einops import einsum, pack, rearrange, reduce, repeat, unpack
from einops.layers.torch import EinMix, Rearrange, Reduce

torch.manual_seed(0)
x = torch.randn(2, 3, 8, 8, requires_grad=True)
patches = rearrange(x, "b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4)
tiled = repeat(reduce(x, "b c h w -> b c", "mean"), "b c -> b c k", k=2)
packed, shapes = pack([patches, patches[:, 0]], "b * d")
first, second = unpack(packed, shapes, "b * d")
net = torch.nn.Sequential(
    Rearrange("b c h w -> b (h w) c"),
    EinMix("b n c -> b n d", weight_shape="c d", bias_shape="d", c=3, d=5),
    Reduce("b n d -> b d", "max"),
)
product = einsum(first, second, "b n d, b d -> b n")
loss = net(x).pow(2).sum() + product.sum() + tiled.sum()
loss.backward()
print(json.dumps({"loss": loss.item(), "grad": x.grad.flatten().tolist()}))
