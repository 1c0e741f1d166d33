"""Micro-batches whose gradients are added up, and the norm of each step."""

import torch
from torch import nn
from torch.utils.data import BatchSampler, RandomSampler


def train(epochs=3, parts=4):
    torch.manual_seed(25)
    x = torch.randn(48, 5)
    y = (x[:, :2] * x[:, 2:4]).sum(-1, keepdim=True)
    model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.LayerNorm(16), nn.Linear(16, 1))
    groups = [
        {"params": [p for n, p in model.named_parameters() if n.endswith("weight")]},
        {
            "params": [p for n, p in model.named_parameters() if n.endswith("bias")],
            "weight_decay": 0,
        },
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-2, weight_decay=0.1)
    losses = []
    for _ in range(epochs):
        batches = list(BatchSampler(RandomSampler(range(48)), batch_size=6, drop_last=True))
        for number, batch in enumerate(batches, 1):
            loss = nn.functional.huber_loss(model(x[batch]), y[batch]) / parts
            loss.backward()
            losses.append(loss.item())
            if number % parts == 0:
                norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                losses.append(norm.item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
