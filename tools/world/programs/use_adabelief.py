"""AdaBelief, with and without its options."""

import json

import torch
from adabelief_pytorch import AdaBelief

torch.manual_seed(0)
found = []
x, y = torch.randn(16, 4), torch.randn(16, 1)
for options in (
    {},
    {"amsgrad": True},
    {"weight_decouple": False, "weight_decay": 0.1},
    {"rectify": False},
):
    torch.manual_seed(1)
    model = torch.nn.Linear(4, 1)
    optimizer = AdaBelief(
        model.parameters(),
        lr=1e-2,
        eps=1e-16,
        betas=(0.9, 0.999),
        print_change_log=False,
        **options,
    )
    for _ in range(6):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
