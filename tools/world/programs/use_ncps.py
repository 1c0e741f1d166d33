"""Liquid networks: CfC and LTC cells in a wiring of neurons."""

import json

import torch
from ncps.torch import LTC, CfC
from ncps.wirings import AutoNCP

results = []
for make in (
    lambda: CfC(3, 10, proj_size=1),
    lambda: CfC(3, AutoNCP(10, 1, seed=3)),
    lambda: LTC(3, AutoNCP(8, 1, seed=3), ode_unfolds=2),
):
    torch.manual_seed(0)
    model = make()
    x = torch.randn(4, 6, 3)
    y = x.cumsum(1).mean(-1, keepdim=True).tanh()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        out, _ = model(x)
        loss = (out - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    results.append(losses)
print(json.dumps(results))
