"""The optimizer Adan."""

import json

import torch
from adan_pytorch import Adan

torch.manual_seed(0)
model = torch.nn.Linear(6, 4)
x, y = torch.randn(16, 6), torch.randn(16, 4)
optimizer = Adan(model.parameters(), lr=1e-2)
found = []
for _ in range(6):
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
