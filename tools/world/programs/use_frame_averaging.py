"""Invariance by averaging over frames."""

import json

import torch
from frame_averaging_pytorch import FrameAverage

torch.manual_seed(0)
model = FrameAverage(torch.nn.Linear(3, 3), dim=3)
x = torch.randn(2, 8, 3)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
found = []
for _ in range(3):
    loss = model(x).sub(1).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
