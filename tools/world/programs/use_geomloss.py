"""Sinkhorn, MMD and Hausdorff losses between clouds."""

import json

import torch
from geomloss import SamplesLoss

torch.manual_seed(0)
found = []
for loss, further in (
    ("sinkhorn", {"p": 2, "blur": 0.1}),
    ("sinkhorn", {"p": 1, "blur": 0.1, "debias": False}),
    ("gaussian", {"blur": 0.5}),
    ("energy", {}),
    ("laplacian", {"blur": 0.3}),
):
    x = torch.randn(20, 2, requires_grad=True)
    y = torch.rand(15, 2)
    value = SamplesLoss(loss, backend="tensorized", **further)(x, y)
    value.backward()
    found += [value.item(), x.grad.abs().sum().item()]
print(json.dumps(found))
