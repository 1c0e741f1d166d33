"""Prodigy, which estimates its own learning rate."""

import json

import torch
from prodigyopt import Prodigy

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 1))
x = torch.randn(32, 4)
y = x.prod(1, keepdim=True)
optimizer = Prodigy(model.parameters(), lr=1.0, d0=1e-3, weight_decay=0.01)
losses = []
for _ in range(15):
    optimizer.zero_grad()
    loss = torch.nn.functional.smooth_l1_loss(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0]
print(json.dumps(losses))
