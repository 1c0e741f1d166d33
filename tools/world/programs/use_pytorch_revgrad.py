"""Reversed gradients."""

import json

import torch
from pytorch_revgrad import RevGrad

torch.manual_seed(0)
layer = torch.nn.Linear(3, 2)
model = torch.nn.Sequential(layer, RevGrad(alpha=0.7))
loss = model(torch.randn(4, 3)).pow(2).sum()
loss.backward()
found = [loss.item(), *layer.weight.grad.flatten().tolist()]
print(json.dumps(found))
