"""An average of weights beside training, stored, applied and restored."""

import json

import torch
from torch_ema import ExponentialMovingAverage

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
ema = ExponentialMovingAverage(model.parameters(), decay=0.9)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
x, y = torch.randn(32, 4), torch.randn(32, 1)
found = []
for _ in range(5):
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ema.update()
    found.append(loss.item())
with ema.average_parameters():
    found.append(model(x).sum().item())
found.append(model(x).sum().item())
ema.store()
ema.copy_to()
found.append(model(x).sum().item())
ema.restore()
found.append(model(x).sum().item())
print(json.dumps(found))
