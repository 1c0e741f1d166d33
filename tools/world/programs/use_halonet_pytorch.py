"""Local attention on blocks with a halo."""

import json

import torch
from halonet_pytorch import HaloAttention

torch.manual_seed(0)
model = HaloAttention(dim=8, block_size=2, halo_size=1, dim_head=4, heads=2)
x = torch.randn(1, 8, 4, 4)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
found = []
for _ in range(3):
    loss = (model(x)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
