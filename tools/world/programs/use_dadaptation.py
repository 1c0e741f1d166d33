"""D-Adaptation."""

import json

import torch
from dadaptation import DAdaptAdaGrad, DAdaptAdam, DAdaptLion, DAdaptSGD

torch.manual_seed(0)
found = []
for make in (DAdaptAdam, DAdaptSGD, DAdaptAdaGrad, DAdaptLion):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = make(model.parameters())
    x = torch.randn(16, 4)
    for _ in range(4):
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
