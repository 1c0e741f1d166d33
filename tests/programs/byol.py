"""BYOL: a network predicts what a slowly moving copy of itself sees."""

import copy

import torch
from torch import nn
from torch.nn import functional as F


def train(steps=8):
    torch.manual_seed(31)
    online = nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 6))
    predict = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 6))
    slow = copy.deepcopy(online)
    for p in slow.parameters():
        p.requires_grad = False
    optimizer = torch.optim.SGD([*online.parameters(), *predict.parameters()], lr=0.1, momentum=0.9)
    losses = []
    for step in range(steps):
        x = torch.randn(16, 10)
        a, b = (F.dropout(x, 0.2) for _ in range(2))
        with torch.no_grad():
            goals = F.normalize(slow(b), dim=-1), F.normalize(slow(a), dim=-1)
        found = [F.normalize(predict(online(v)), dim=-1) for v in (a, b)]
        loss = sum(2 - 2 * (f * g).sum(-1).mean() for f, g in zip(found, goals, strict=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rate = 0.9 + 0.1 * step / steps
        torch._foreach_lerp_(
            list(slow.parameters()), [p.detach() for p in online.parameters()], 1 - rate
        )
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
