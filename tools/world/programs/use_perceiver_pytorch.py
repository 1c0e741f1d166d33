"""A Perceiver that learns two labels."""

import json

import torch
from perceiver_pytorch import Perceiver

torch.manual_seed(0)
model = Perceiver(
    input_channels=3,
    input_axis=2,
    num_freq_bands=2,
    max_freq=4.0,
    depth=2,
    num_latents=8,
    latent_dim=16,
    num_classes=3,
    cross_heads=1,
    latent_heads=2,
    cross_dim_head=8,
    latent_dim_head=8,
)
x = torch.randn(2, 6, 6, 3)
y = torch.tensor([0, 2])
optimizer = torch.optim.Adam(model.parameters(), 0.01)
found = []
for _ in range(3):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
