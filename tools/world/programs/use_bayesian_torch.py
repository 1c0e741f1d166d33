"""Layers with a distribution over their weights, and the conversion of a plain network."""

import json

import torch
from bayesian_torch.layers import Conv2dReparameterization, LinearFlipout
from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn, get_kl_loss

torch.manual_seed(0)
plain = torch.nn.Sequential(torch.nn.Linear(18, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
prior = {
    "prior_mu": 0.0,
    "prior_sigma": 1.0,
    "posterior_mu_init": 0.0,
    "posterior_rho_init": -3.0,
    "type": "Reparameterization",
    "moped_enable": False,
}
dnn_to_bnn(plain, prior)
conv = Conv2dReparameterization(1, 2, 3)
last = LinearFlipout(3, 3)
x, y = torch.randn(6, 1, 5, 5), torch.randint(3, (6,))
parts = [*conv.parameters(), *plain.parameters(), *last.parameters()]
optimizer = torch.optim.Adam(parts, lr=1e-2)
found = []
for _ in range(4):
    maps, kl = conv(x)
    scores, further = last(plain(maps.flatten(1)))
    kl = kl + further + get_kl_loss(plain)
    loss = torch.nn.functional.cross_entropy(scores, y) + kl / 100
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
