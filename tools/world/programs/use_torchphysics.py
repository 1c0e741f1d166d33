"""Physics-informed conditions of TorchPhysics."""

import json

import torch
import torchphysics as tp

torch.manual_seed(0)
X, U = tp.spaces.R1("x"), tp.spaces.R1("u")
domain = tp.domains.Interval(X, 0, 1)
model = tp.models.FCN(X, U, hidden=(8, 8))
sampler = tp.samplers.GridSampler(domain, 10)
condition = tp.conditions.PINNCondition(
    model, sampler, lambda u, x: tp.utils.laplacian(u, x) + torch.sin(x)
)
edge = tp.conditions.PINNCondition(model, tp.samplers.GridSampler(domain.boundary, 2), lambda u: u)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
found = []
for _ in range(4):
    optimizer.zero_grad()
    loss = condition() + edge()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
