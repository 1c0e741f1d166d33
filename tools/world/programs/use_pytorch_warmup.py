"""Warm-up of learning rates."""

import json

import pytorch_warmup as warmup
import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8)
warm = warmup.UntunedLinearWarmup(optimizer)
x, found = torch.randn(8, 3), []
for _ in range(6):
    loss = (model(x) - 1).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with warm.dampening():
        scheduler.step()
    found += [loss.item(), optimizer.param_groups[0]["lr"]]
print(json.dumps(found))
