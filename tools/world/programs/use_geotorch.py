"""Weights on manifolds: orthogonal, low rank, positive definite."""

import json

import geotorch
import torch

torch.manual_seed(0)
found = []
for constrain in (
    geotorch.orthogonal,
    lambda m, n: geotorch.low_rank(m, n, 2),
    geotorch.positive_definite,
    geotorch.skew,
    geotorch.sphere,
):
    layer = torch.nn.Linear(6, 6)
    constrain(layer, "weight")
    layer.weight = torch.eye(6) if constrain is geotorch.orthogonal else layer.weight.detach()
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-2)
    x = torch.randn(8, 6)
    for _ in range(3):
        loss = (layer(x) - 1).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
print(json.dumps(found))
