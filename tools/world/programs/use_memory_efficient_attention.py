"""Attention in chunks."""

import json

import torch
from memory_efficient_attention_pytorch import Attention

torch.manual_seed(0)
model = Attention(
    dim=16, dim_head=8, heads=2, memory_efficient=True, q_bucket_size=4, k_bucket_size=4
)
x = torch.randn(2, 12, 16)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
found = []
for _ in range(3):
    loss = (model(x)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
