"""A neural spline flow of zuko, conditioned on a context."""

import json

import torch
import zuko

torch.manual_seed(0)
flow = zuko.flows.NSF(features=2, context=1, transforms=2, hidden_features=(16, 16))
x, context = torch.randn(32, 2), torch.randn(32, 1)
optimizer = torch.optim.Adam(flow.parameters(), lr=1e-2)
losses = []
for _ in range(5):
    loss = -flow(context).log_prob(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0]
print(json.dumps([losses, flow(context[:2]).sample((2,)).flatten().tolist()]))
