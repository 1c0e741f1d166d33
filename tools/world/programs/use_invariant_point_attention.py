"""Attention on frames of residues."""

import json

import torch
from invariant_point_attention import IPABlock

torch.manual_seed(0)
model = IPABlock(dim=8, heads=2, pairwise_repr_dim=4)
x, pairs = torch.randn(1, 6, 8), torch.randn(1, 6, 6, 4)
turns = torch.linalg.qr(torch.randn(6, 3, 3))[0][None]
moves, mask = torch.randn(1, 6, 3), torch.ones(1, 6).bool()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
found = []
for _ in range(3):
    loss = (
        model(x, pairwise_repr=pairs, rotations=turns, translations=moves, mask=mask)
        .sub(1)
        .pow(2)
        .mean()
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
