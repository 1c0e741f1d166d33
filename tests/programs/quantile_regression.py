"""Quantiles of a noisy curve by the pinball loss, with monotone outputs."""

import torch
from torch import nn

QUANTILES = (0.1, 0.5, 0.9)


def pinball(found, y):
    levels = torch.tensor(QUANTILES)
    error = y.unsqueeze(-1) - found
    return torch.maximum(levels * error, (levels - 1) * error).mean()


def train(steps=15):
    torch.manual_seed(13)
    model = nn.Sequential(nn.Linear(1, 16), nn.ELU(), nn.Linear(16, 3))
    optimizer = torch.optim.NAdam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        x = torch.rand(32, 1) * 4 - 2
        y = (x**2).squeeze(-1) + torch.randn(32) * x.abs().squeeze(-1)
        first, *steps_up = model(x).unbind(-1)
        up = torch.stack(steps_up, -1)
        found = torch.cat([first.unsqueeze(-1), first.unsqueeze(-1) + up.exp().cumsum(-1)], -1)
        loss = pinball(found, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    inside = ((y >= found[:, 0]) & (y <= found[:, 2])).to(x.dtype).mean()
    return [*losses, inside.item()]


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
