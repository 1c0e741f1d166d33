"""SimCLR: two noisy views of a sample attract, all others repel."""

import torch
from torch import nn
from torch.nn import functional as F


def views(x):
    """A random crop of the signal, scaled and with noise, twice."""
    for _ in range(2):
        shift = torch.randint(0, 5, (1,)).item()
        scale = 1 + 0.2 * torch.randn(len(x), 1, 1)
        yield torch.roll(x, shift, -1) * scale + 0.1 * torch.randn_like(x)


def nt_xent(a, b, temperature=0.5):
    z = F.normalize(torch.cat([a, b]), dim=-1)
    similarity = z @ z.T / temperature
    similarity.fill_diagonal_(float("-inf"))
    count = len(a)
    target = torch.cat([torch.arange(count, 2 * count), torch.arange(count)])
    return F.cross_entropy(similarity, target)


def train(steps=10):
    torch.manual_seed(5)
    encoder = nn.Sequential(
        nn.Conv1d(1, 8, 5, stride=2),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        nn.Conv1d(8, 16, 3),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(16, 16),
        nn.ReLU(),
        nn.Linear(16, 8),
    )
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    losses = []
    for _ in range(steps):
        x = torch.randn(12, 1, 32).cumsum(-1)
        a, b = (encoder(view) for view in views(x))
        loss = nt_xent(a, b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
