"""A neural ODE, integrated by a Runge-Kutta method and trained through its steps."""

import torch
from torch import nn


def integrate(field, x, steps=6, length=0.2):
    for _ in range(steps):
        k1 = field(x)
        k2 = field(x + length / 2 * k1)
        k3 = field(x + length / 2 * k2)
        k4 = field(x + length * k3)
        x = x + length / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return x


def train(steps=10):
    torch.manual_seed(6)
    field = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
    turn = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    optimizer = torch.optim.RMSprop(field.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        start = torch.randn(16, 2)
        goal = start @ torch.matrix_exp(1.2 * turn)
        loss = (integrate(field, start) - goal).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
