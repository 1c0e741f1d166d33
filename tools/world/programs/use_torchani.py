"""Atomic environment vectors of ANI and a network over them."""

import json

import torch
import torchani

torch.manual_seed(0)
aev = torchani.AEVComputer.like_2x() if hasattr(torchani.AEVComputer, "like_2x") else None
species = torch.tensor([[1, 0, 0, 0, 0]])
coordinates = torch.tensor(
    [
        [
            [0.03, 0.005, 0.01],
            [-0.83, 0.39, -0.26],
            [-0.66, -0.84, 0.20],
            [0.45, 0.50, 0.87],
            [0.60, -0.09, -0.80],
        ]
    ],
    requires_grad=True,
)
found = []
out = aev(species, coordinates)
out = out[1] if isinstance(out, tuple) else out
net = torch.nn.Sequential(
    torch.nn.Linear(out.shape[-1], 16), torch.nn.CELU(0.1), torch.nn.Linear(16, 1)
)
energy = net(out).sum()
(force,) = torch.autograd.grad(-energy, coordinates, create_graph=True)
(energy + force.pow(2).sum()).backward()
found += [
    out.sum().item(),
    energy.item(),
    force.flatten().tolist(),
    net[0].weight.grad.abs().sum().item(),
]
print(json.dumps(found))
