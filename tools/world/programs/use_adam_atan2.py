"""AdamAtan2 and its relatives: no epsilon, because atan2 needs none."""

import json

import torch
from adam_atan2_pytorch import AdamAtan2, AdoptAtan2, MuonAdamAtan2


def train(make):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = make(model)
    x = torch.randn(32, 4)
    y = x.sum(1, keepdim=True).sin()
    losses = []
    for _ in range(12):
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    return losses


print(
    json.dumps(
        [
            train(lambda m: AdamAtan2(m.parameters(), lr=1e-2, weight_decay=0.01)),
            train(lambda m: AdamAtan2(m.parameters(), lr=1e-2, regen_reg_rate=0.1)),
            train(lambda m: AdoptAtan2(m.parameters(), lr=1e-2)),
            train(lambda m: MuonAdamAtan2([m[0].weight], [m[0].bias, *m[2].parameters()], lr=1e-2)),
        ]
    )
)
