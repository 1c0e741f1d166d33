"""A Fourier neural operator fitted to its input."""

import json

import torch
from neuralop.models import FNO

torch.manual_seed(0)
model = FNO(
    n_modes=(4, 4),
    hidden_channels=8,
    in_channels=1,
    out_channels=1,
    n_layers=2,
    projection_channel_ratio=2,
)
x = torch.randn(2, 1, 8, 8)
optimizer = torch.optim.Adam(model.parameters(), 0.001)
found = []
for _ in range(3):
    loss = ((model(x) - x) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
