"""The optimizer Ranger."""

import json

import torch
from pytorch_ranger import Ranger

torch.manual_seed(0)
model = torch.nn.Linear(6, 4)
x, y = torch.randn(16, 6), torch.randn(16, 4)
optimizer = Ranger(model.parameters(), lr=1e-2)
found = []
for _ in range(6):
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
