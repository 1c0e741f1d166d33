"""An equivariant graph network."""

import json

import torch
from egnn_pytorch import EGNN

torch.manual_seed(0)
model = EGNN(dim=8, num_nearest_neighbors=3)
feats, places = torch.randn(1, 6, 8), torch.randn(1, 6, 3)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
found = []
for _ in range(3):
    loss = sum(part.pow(2).mean() for part in model(feats, places))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
