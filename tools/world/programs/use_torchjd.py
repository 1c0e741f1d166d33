"""Jacobian descent: aggregated gradients of several losses."""

import json

import torch
import torchjd.autojac as autojac
from torchjd.aggregation import MGDA, AlignedMTL, PCGrad

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(8, 5), torch.randn(8, 2)
found = []
for aggregator in (MGDA(), AlignedMTL(), PCGrad()):
    losses = (model(x) - y).pow(2).mean(0)
    optimizer.zero_grad()
    autojac.backward(losses)
    autojac.jac_to_grad(list(model.parameters()), aggregator)
    optimizer.step()
    found.append(losses.tolist())
matrix = torch.randn(3, 6)
found.append(AlignedMTL()(matrix).tolist())
print(json.dumps(found))
