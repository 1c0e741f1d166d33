"""Relevance of inputs by rules put on layers through hooks."""

import json

import torch
from zennit.attribution import Gradient, IntegratedGradients, SmoothGrad
from zennit.composites import EpsilonGammaBox, EpsilonPlusFlat
from zennit.rules import Epsilon

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Conv2d(4, 4, 3), torch.nn.ReLU(),
    torch.nn.Flatten(), torch.nn.Linear(64, 3),
).eval()  # fmt: skip
x, target = torch.rand(2, 1, 8, 8), torch.eye(3)[:2]
found = []
for composite in (EpsilonPlusFlat(), EpsilonGammaBox(low=0.0, high=1.0), None):
    with Gradient(model=model, composite=composite) as attribute:
        output, relevance = attribute(x, target)
    found += [output.sum().item(), *relevance.sum((1, 2, 3)).tolist(), relevance.abs().sum().item()]
with SmoothGrad(model=model, n_iter=3) as attribute:
    found.append(attribute(x, target)[1].sum().item())
with IntegratedGradients(model=model, n_iter=4) as attribute:
    found.append(attribute(x, target)[1].sum().item())
layer = torch.nn.Linear(3, 2)
handle = Epsilon().register(layer)
inputs = torch.rand(1, 3, requires_grad=True)
found += torch.autograd.grad(layer(inputs).sum(), inputs)[0].flatten().tolist()
handle.remove()
print(json.dumps(found))
