"""A normalising flow of affine couplings and a learnt rotation, fitted by likelihood."""

import math

import torch
import torch.nn as nn
from torch.nn.utils.parametrizations import orthogonal


class Coupling(nn.Module):
    """Half of the features scale and shift the other half."""

    def __init__(self, width=16, flip=False):
        super().__init__()
        self.flip = flip
        self.network = nn.Sequential(nn.Linear(2, width), nn.GELU(), nn.Linear(width, 4))
        nn.init.normal_(self.network[-1].weight, std=1e-2)

    def forward(self, x):
        kept, changed = x.flip(1).chunk(2, dim=1) if self.flip else x.chunk(2, dim=1)
        log_scale, shift = self.network(kept).tensor_split(2, dim=1)
        log_scale = torch.tanh(log_scale)
        changed = changed * log_scale.exp() + shift
        return torch.cat((kept, changed), dim=1), log_scale.sum(dim=1)


class Mix(nn.Module):
    """An invertible matrix; its determinant is paid for."""

    def __init__(self):
        super().__init__()
        self.rotation = orthogonal(nn.Linear(4, 4, bias=False))
        self.stretch = nn.Parameter(torch.eye(4) + 0.1 * torch.randn(4, 4))

    def forward(self, x):
        _, log_determinant = torch.linalg.slogdet(self.stretch)
        return self.rotation(x) @ self.stretch.T, log_determinant.expand(len(x))


class Flow(nn.Module):
    def __init__(self, depth=3):
        super().__init__()
        self.steps = nn.ModuleList()
        for number in range(depth):
            self.steps.append(Coupling(flip=number % 2 == 1))
            self.steps.append(Mix())

    def log_likelihood(self, x):
        total = torch.zeros(len(x))
        for step in self.steps:
            x, change = step(x)
            total = total + change
        return total - 0.5 * (x.square() + math.log(2 * math.pi)).sum(dim=1)


def make_points(size):
    """Points near a bent line in four dimensions."""
    t = torch.randn(size)
    line = torch.stack([t, t.square() - 1, torch.sin(2 * t), t.cos()], dim=1)
    return line + 0.2 * torch.randn(size, 4)


def train(steps=20):
    torch.manual_seed(23)
    flow = Flow()
    optimizer = torch.optim.Adam(flow.parameters(), lr=0.01)
    averaged = torch.optim.swa_utils.AveragedModel(flow)
    losses = []
    for step in range(steps):
        loss = -flow.log_likelihood(make_points(48)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step >= steps // 2:
            averaged.update_parameters(flow)
    with torch.no_grad():
        losses.append(-averaged.module.log_likelihood(make_points(48)).mean().item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
