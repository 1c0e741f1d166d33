"""Functional Adam and a differentiable inner loop of torchopt."""

import json

import torch
import torchopt

torch.manual_seed(0)
net = torch.nn.Linear(3, 1)
x, y = torch.randn(8, 3), torch.randn(8, 1)
optimizer = torchopt.Adam(net.parameters(), lr=0.1)
losses = []
for _ in range(4):
    loss = (net(x) - y).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
inner = torchopt.MetaSGD(net, lr=0.1)
scale = torch.tensor(1.5, requires_grad=True)
inner.step((scale * net(x) - y).pow(2).mean())
(net(x) - y).pow(2).mean().backward()
print(json.dumps([losses, scale.grad.item()]))
