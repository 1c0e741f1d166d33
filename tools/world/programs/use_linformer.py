"""Attention of linear cost."""

import json

import torch
from linformer import Linformer

torch.manual_seed(0)
model = Linformer(dim=16, seq_len=12, depth=2, heads=2, k=4)
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
