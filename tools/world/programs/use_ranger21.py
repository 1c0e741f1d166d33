"""Ranger21: gradient centralization, norm loss, lookahead, warm-up and warm-down in one."""

import json

import torch
from ranger21 import Ranger21

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv1d(2, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(24, 1)
)
optimizer = Ranger21(
    model.parameters(), lr=1e-2, num_epochs=6, num_batches_per_epoch=4, weight_decay=1e-3
)
x = torch.randn(16, 2, 6)
y = x.mean((1, 2))[:, None]
losses = []
for _ in range(20):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0]
print(json.dumps(losses))
