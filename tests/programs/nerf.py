"""A radiance field of one dimension: density and color along rays, composited."""

import math

import torch
from torch import nn


def encode(x, octaves=4):
    powers = 2.0 ** torch.arange(octaves) * math.pi
    angles = x.unsqueeze(-1) * powers
    return torch.cat([angles.sin(), angles.cos()], -1).flatten(-2)


class Field(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(16, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.density, self.color = nn.Linear(width, 1), nn.Linear(width, 3)

    def forward(self, places):
        x = self.body(encode(places))
        return nn.functional.softplus(self.density(x)).squeeze(-1), self.color(x).sigmoid()


def render(field, start, direction, count=12):
    edges = torch.linspace(0, 2, count + 1)
    depth = edges[:-1] + torch.rand(len(start), count) * (edges[1:] - edges[:-1])
    density, color = field(start.unsqueeze(1) + depth.unsqueeze(-1) * direction.unsqueeze(1))
    gap = torch.diff(depth, append=torch.full((len(start), 1), 2.0))
    opacity = 1 - torch.exp(-density * gap)
    clear = torch.cumprod(torch.cat([torch.ones(len(start), 1), 1 - opacity + 1e-10], 1), 1)
    weights = opacity * clear[:, :-1]
    return torch.einsum("rs,rsc->rc", weights, color), weights


def train(steps=6):
    torch.manual_seed(20)
    field = Field()
    optimizer = torch.optim.Adam(field.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    losses = []
    for _ in range(steps):
        start = torch.rand(16, 2) * 2 - 1
        angle = torch.rand(16) * 2 * math.pi
        direction = torch.stack([angle.cos(), angle.sin()], -1)
        goal = torch.stack([angle.cos() ** 2, angle.sin() ** 2, start.norm(dim=-1) / 2], -1)
        image, weights = render(field, start, direction)
        loss = (image - goal).pow(2).mean() + 1e-3 * weights.sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
