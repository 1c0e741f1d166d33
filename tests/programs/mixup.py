"""Mixup and cut-out of small images, with soft labels and class weights."""

import torch
from torch import nn
from torch.nn import functional as F


def mixed(x, y, classes, alpha=0.4):
    share = torch.distributions.Beta(alpha, alpha).sample()
    order = torch.randperm(len(x))
    target = F.one_hot(y, classes).to(x.dtype)
    return share * x + (1 - share) * x[order], share * target + (1 - share) * target[order]


def cut_out(x, size=3):
    top, left = torch.randint(0, 8 - size, (2,)).tolist()
    x = x.clone()
    x[..., top : top + size, left : left + size] = 0
    return x


def train(steps=6):
    torch.manual_seed(23)
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU6(),
        nn.AvgPool2d(2),
        nn.Conv2d(6, 8, 3),
        nn.Softplus(),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 3),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    weights = torch.tensor([1.0, 2.0, 0.5])
    losses = []
    for _ in range(steps):
        y = torch.randint(0, 3, (12,))
        x = torch.randn(12, 1, 8, 8) + y.view(-1, 1, 1, 1)
        x, target = mixed(cut_out(x), y, 3)
        loss = F.cross_entropy(model(x), target, weight=weights)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
