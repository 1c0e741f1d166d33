"""A mixture of experts: each row goes to its two best experts, with a balancing loss."""

import torch
from torch import nn
from torch.nn import functional as F


class Mixture(nn.Module):
    def __init__(self, width=8, experts=4, chosen=2):
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 16), nn.GELU(), nn.Linear(16, width))
            for _ in range(experts)
        )
        self.chosen = chosen

    def forward(self, x):
        shares = self.gate(x).softmax(-1)
        weights, picked = shares.topk(self.chosen, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            row, slot = torch.where(picked == number)
            if len(row):
                out.index_add_(0, row, expert(x[row]) * weights[row, slot].unsqueeze(-1))
        load = F.one_hot(picked, len(self.experts)).sum((0, 1)).to(x.dtype) / picked.numel()
        return out, len(self.experts) * (load * shares.mean(0)).sum()


def train(steps=8):
    torch.manual_seed(12)
    model = nn.ModuleList([Mixture(), Mixture()])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        x = torch.randn(24, 8)
        y, balance = x, 0.0
        for layer in model:
            change, cost = layer(y)
            y, balance = y + change, balance + cost
        loss = F.mse_loss(y, x.sort(-1).values) + 0.01 * balance
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
