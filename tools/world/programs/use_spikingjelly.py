"""Spiking neurons over several time steps, with surrogate gradients."""

import json

import torch
from spikingjelly.activation_based import functional, layer, neuron, surrogate

torch.manual_seed(0)
model = torch.nn.Sequential(
    layer.Conv2d(1, 4, 3, padding=1, bias=False), layer.BatchNorm2d(4),
    neuron.LIFNode(surrogate_function=surrogate.ATan()), layer.MaxPool2d(2, 2), layer.Flatten(),
    layer.Linear(64, 10), neuron.IFNode(surrogate_function=surrogate.Sigmoid()),
)  # fmt: skip
functional.set_step_mode(model, "m")
x, y = torch.rand(5, 3, 1, 8, 8), torch.randint(10, (3,))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
found = []
for _ in range(3):
    loss = torch.nn.functional.mse_loss(
        model(x).mean(0), torch.nn.functional.one_hot(y, 10).float()
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    functional.reset_net(model)
    found.append(loss.item())
print(json.dumps(found))
