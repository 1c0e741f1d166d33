"""Twenty of a collection's optimizers, each a few steps."""

import json

import torch
from pytorch_optimizer import load_optimizer

found = []
names = [
    "adabound",
    "adai",
    "adamp",
    "adan",
    "lion",
    "lamb",
    "lars",
    "madgrad",
    "nero",
    "novograd",
    "padam",
    "qhadam",
    "radam",
    "ranger",
    "sophiah",
    "tiger",
    "yogi",
    "adopt",
    "grams",
    "muon",
]
for name in names:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    x, y = torch.randn(16, 4), torch.randn(16, 1)
    try:
        optimizer = load_optimizer(name)(model.parameters(), lr=1e-3)
    except Exception as error:
        found.append(float(len(type(error).__name__)))
        continue
    for _ in range(4):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward(create_graph=name == "sophiah")
        optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
