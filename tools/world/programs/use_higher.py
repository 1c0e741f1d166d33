"""Second-order MAML with higher."""

import json

import higher
import torch

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
inner = torch.optim.SGD(net.parameters(), lr=0.1)
outer = torch.optim.Adam(net.parameters(), lr=1e-2)
x, y = torch.randn(10, 2), torch.randn(10, 1)
losses = []
for _ in range(4):
    outer.zero_grad()
    with higher.innerloop_ctx(net, inner, copy_initial_weights=False) as (fast, optimizer):
        for _ in range(2):
            optimizer.step((fast(x[:5]) - y[:5]).pow(2).mean())
        loss = (fast(x[5:]) - y[5:]).pow(2).mean()
        loss.backward()
    outer.step()
    losses.append(loss.item())
print(json.dumps([losses, [p.grad.flatten().tolist() for p in net.parameters()]]))
