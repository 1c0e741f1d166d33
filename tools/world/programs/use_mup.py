"""Maximal update parametrization: base shapes, readout, optimizer."""

import json

import torch
from mup import MuAdam, MuReadout, MuSGD, set_base_shapes
from mup import init as mu_init

torch.manual_seed(0)


class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = torch.nn.Linear(4, width)
        self.second = torch.nn.Linear(width, width)
        self.out = MuReadout(width, 2)

    def forward(self, x):
        return self.out(torch.relu(self.second(torch.relu(self.first(x)))))


found = []
for kind in (MuAdam, MuSGD):
    model = set_base_shapes(Net(32), Net(8), delta=Net(16))
    mu_init.xavier_uniform_(model.second.weight)
    optimizer = kind(model.parameters(), lr=1e-2)
    x, y = torch.randn(8, 4), torch.randint(0, 2, (8,))
    for _ in range(3):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    found += [group["lr"] for group in optimizer.param_groups]
print(json.dumps(found))
