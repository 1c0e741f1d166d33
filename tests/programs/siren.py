"""A network of sines fits an image and its gradient."""

import math

import torch
from torch import nn


class Sine(nn.Module):
    def __init__(self, inputs, outputs, first=False, omega=10.0):
        super().__init__()
        self.omega, self.linear = omega, nn.Linear(inputs, outputs)
        bound = 1 / inputs if first else math.sqrt(6 / inputs) / omega
        nn.init.uniform_(self.linear.weight, -bound, bound)

    def forward(self, x):
        return torch.sin(self.omega * self.linear(x))


def train(steps=8):
    torch.manual_seed(19)
    model = nn.Sequential(Sine(2, 24, first=True), Sine(24, 24), nn.Linear(24, 1))
    axis = torch.linspace(-1, 1, 8)
    places = torch.cartesian_prod(axis, axis).requires_grad_()
    x, y = places.detach().unbind(-1)
    image = torch.sin(3 * x) * torch.cos(2 * y)
    slope = torch.stack(
        [3 * torch.cos(3 * x) * torch.cos(2 * y), -2 * torch.sin(3 * x) * torch.sin(2 * y)], -1
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(steps):
        found = model(places).squeeze(-1)
        (change,) = torch.autograd.grad(found.sum(), places, create_graph=True)
        loss = (found - image).pow(2).mean() + 0.1 * (change - slope).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
