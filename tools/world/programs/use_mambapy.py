"""Mamba in plain PyTorch: parallel scan, and stepwise inference."""

import json

import torch
from mambapy.mamba import Mamba, MambaConfig

torch.manual_seed(0)
model = Mamba(MambaConfig(d_model=16, n_layers=2))
x = torch.randn(2, 12, 16)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
found = []
for _ in range(3):
    loss = (model(x) - 1).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
with torch.no_grad():
    caches = [(None, torch.zeros(2, 32, 3)) for _ in range(2)]
    for t in range(3):
        step, caches = model.step(x[:, t], caches)
    found.append(step.sum().item())
    found.append(model(x[:, :3])[:, -1].sum().item())
print(json.dumps(found))
