"""Equivariant layers of e3nn."""

import json

import torch
from e3nn import o3

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
harmonics = o3.spherical_harmonics([0, 1, 2], torch.randn(5, 3), normalize=True)
product = o3.FullyConnectedTensorProduct("1x0e + 1x1o + 1x2e", "2x0e + 1x1o", "2x0e + 1x1o")
linear = o3.Linear("2x0e + 1x1o", "1x0e + 1x1o")
x = torch.randn(5, 5, requires_grad=True)
out = linear(product(harmonics, x))
out.pow(2).sum().backward()
print(json.dumps([harmonics.tolist(), out.tolist(), x.grad.tolist()]))
