"""The schedule-free optimizers."""

import json

import torch
from schedulefree import AdamWScheduleFree, RAdamScheduleFree, SGDScheduleFree

found = {}
for kind in (SGDScheduleFree, AdamWScheduleFree, RAdamScheduleFree):
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 1)
    x, y = torch.randn(16, 4), torch.randn(16, 1)
    optimizer = kind(net.parameters(), lr=0.05)
    optimizer.train()
    losses = []
    for _ in range(8):
        loss = (net(x) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    optimizer.eval()
    found[kind.__name__] = [losses, net.weight.tolist()]
print(json.dumps(found))
