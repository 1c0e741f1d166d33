"""Optimizers of heavyball."""

import json

import heavyball
import torch

heavyball.utils.compile_mode = None
found = []
for name in ("AdamW", "SFAdamW", "ADOPT"):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    x = torch.randn(16, 4)
    optimizer = getattr(heavyball, name)(model.parameters(), lr=0.01)
    for _ in range(3):
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
print(json.dumps(found))
