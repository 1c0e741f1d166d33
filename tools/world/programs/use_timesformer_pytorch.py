"""Attention over space and time."""

import json

import torch
from timesformer_pytorch import TimeSformer

torch.manual_seed(0)
model = TimeSformer(
    dim=16, image_size=8, patch_size=4, num_frames=2, num_classes=3, depth=1, heads=2, dim_head=8
)
x = torch.randn(1, 2, 3, 8, 8)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
found = []
for _ in range(3):
    loss = (model(x)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
