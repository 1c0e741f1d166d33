"""Detectors of inputs from elsewhere."""

import json

import torch
from pytorch_ood.detector import ODIN, EnergyBased, Entropy, MaxLogit, MaxSoftmax

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
inside, outside = torch.randn(20, 4), torch.randn(20, 4) * 4
found = []
for detector in (
    MaxSoftmax(model),
    EnergyBased(model),
    Entropy(model),
    MaxLogit(model),
    ODIN(model, norm_std=[1.0]),
):
    a, b = detector(inside), detector(outside)
    found.append([a.sum().item(), b.sum().item()])


print(json.dumps(found))
