"""Several optimizers of torch-optimizer on one problem."""

import json

import torch
import torch_optimizer as optim

results = {}
for name in ("RAdam", "Lamb", "AdaBelief", "Yogi", "DiffGrad", "Lookahead"):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    x = torch.randn(16, 3)
    y = x.sum(1, keepdim=True)
    if name == "Lookahead":
        optimizer = optim.Lookahead(optim.RAdam(model.parameters(), lr=0.05), k=3)
    else:
        optimizer = getattr(optim, name)(model.parameters(), lr=0.05)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = (model(x) - y).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    results[name] = losses
print(json.dumps(results))
