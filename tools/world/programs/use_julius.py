"""Filters and resampling of audio, through which gradients pass."""

import json

import julius
import torch

torch.manual_seed(0)
x = torch.randn(1, 800)
model = torch.nn.Conv1d(1, 1, 9, padding=4)
bands = julius.SplitBands(8000, n_bands=3)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
found = []
for _ in range(3):
    loss = sum(part.pow(2).mean() for part in bands(julius.resample_frac(model(x), 4, 3)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
