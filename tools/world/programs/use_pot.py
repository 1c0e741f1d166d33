"""Optimal transport with gradients by the torch backend."""

import json

import ot
import torch

torch.manual_seed(0)
x = torch.randn(8, 2, dtype=torch.float64, requires_grad=True)
y = torch.randn(8, 2, dtype=torch.float64)
optimizer = torch.optim.SGD([x], lr=0.5)
found = []
for _ in range(3):
    a = ot.unif(8, type_as=y)
    cost = ot.dist(x, y)
    loss = (
        ot.emd2(a, a, cost)
        + ot.sinkhorn2(a, a, cost, 1.0)
        + ot.sliced_wasserstein_distance(x, y, n_projections=5, seed=1)
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
found.append(x.grad.sum().item())
print(json.dumps(found))
