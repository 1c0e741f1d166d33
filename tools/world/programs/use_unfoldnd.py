"""Unfolding and folding in one to three dimensions."""

import json

import torch
import unfoldNd

torch.manual_seed(0)
found = []
for rank in (1, 2, 3):
    x = torch.randn(2, 3, *(6,) * rank, requires_grad=True)
    y = unfoldNd.unfoldNd(x, 2, stride=2)
    z = unfoldNd.foldNd(y.sin(), (6,) * rank, 2, stride=2)
    z.pow(2).sum().backward()
    found += [list(y.shape), y.sum().item(), z.sum().item(), x.grad.abs().sum().item()]
    t = unfoldNd.UnfoldTransposeNd(3, padding=1)(x.detach()) if rank < 3 else y
    found.append(t.abs().sum().item())
print(json.dumps(found))
