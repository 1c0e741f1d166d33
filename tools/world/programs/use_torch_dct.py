"""Cosine transforms."""

import json

import torch
import torch_dct as dct

torch.manual_seed(0)
x = torch.randn(4, 16, requires_grad=True)
y = dct.dct(x)
back = dct.idct(y)
two = dct.dct_2d(x)
(y.pow(2).sum() + two.abs().sum()).backward()
found = [
    y.sum().item(),
    (back - x).abs().max().item(),
    two.abs().sum().item(),
    dct.dct1(x).sum().item(),
    *x.grad[0].tolist(),
]
print(json.dumps(found))
