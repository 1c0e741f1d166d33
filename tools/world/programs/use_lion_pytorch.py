"""Lion as the optimizer of a small regression."""

import json

import torch
from lion_pytorch import Lion

torch.manual_seed(0)
x = torch.randn(32, 4)
y = (x**2).sum(1, keepdim=True)
model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = Lion(model.parameters(), lr=1e-2, weight_decay=1e-2)
losses = []
for _ in range(12):
    loss = (model(x) - y).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0]
print(json.dumps(losses))
