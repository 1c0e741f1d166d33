"""Convolution-augmented attention."""

import json

import torch
from conformer import ConformerBlock

torch.manual_seed(0)
model = ConformerBlock(dim=16, dim_head=8, heads=2, conv_kernel_size=5)
x = torch.randn(2, 9, 16)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
found = []
for _ in range(3):
    loss = (model(x)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
