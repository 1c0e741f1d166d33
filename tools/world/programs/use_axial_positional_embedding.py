"""Positions as sums over two axes."""

import json

import torch
from axial_positional_embedding import AxialPositionalEmbedding

torch.manual_seed(0)
model = AxialPositionalEmbedding(dim=8, axial_shape=(4, 4), axial_dims=(4, 4))
x = torch.randn(2, 16, 8)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
found = []
for _ in range(3):
    loss = (x + model(x)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
