"""Bayesian layers."""

import json

import torch
import torchbnn as bnn

torch.manual_seed(0)
model = torch.nn.Sequential(
    bnn.BayesLinear(prior_mu=0, prior_sigma=0.1, in_features=3, out_features=4),
    torch.nn.ReLU(),
    bnn.BayesLinear(prior_mu=0, prior_sigma=0.1, in_features=4, out_features=2),
)
kl = bnn.BKLLoss(reduction="mean", last_layer_only=False)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
x, y, found = torch.randn(6, 3), torch.randint(0, 2, (6,)), []
for _ in range(3):
    loss = torch.nn.functional.cross_entropy(model(x), y) + 0.1 * kl(model)[0]
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
