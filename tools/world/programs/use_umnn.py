"""Monotonic networks."""

import json

import torch
from UMNN import MonotonicNN

torch.manual_seed(0)
model = MonotonicNN(3, [16, 16], nb_steps=20)
x, h = torch.randn(8, 1), torch.randn(8, 2)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
found = []
for _ in range(3):
    optimizer.zero_grad()
    loss = (model(x, h) - x).pow(2).mean()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
