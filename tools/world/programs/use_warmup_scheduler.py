"""A warm-up before other schedules."""

import json

import torch
from warmup_scheduler import GradualWarmupScheduler

weight = torch.nn.Parameter(torch.ones(2))
found = []
for after in (
    torch.optim.lr_scheduler.ExponentialLR,
    lambda o, gamma: torch.optim.lr_scheduler.StepLR(o, 2, gamma),
):
    optimizer = torch.optim.SGD([weight], lr=0.1)
    schedule = GradualWarmupScheduler(
        optimizer, multiplier=2, total_epoch=4, after_scheduler=after(optimizer, gamma=0.9)
    )
    optimizer.zero_grad()
    optimizer.step()
    for epoch in range(10):
        schedule.step(epoch)
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
print(json.dumps(found))
