"""Forecasts with variates as tokens."""

import json

import torch
from iTransformer import iTransformer

torch.manual_seed(0)
model = iTransformer(
    num_variates=3,
    lookback_len=12,
    dim=8,
    depth=1,
    heads=2,
    dim_head=4,
    pred_length=(2, 4),
    num_tokens_per_variate=1,
    use_reversible_instance_norm=True,
)
x = torch.randn(2, 12, 3)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
found = []
for _ in range(3):
    loss = sum(part.pow(2).mean() for part in model(x).values())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
