"""An exponential moving average of weights beside training, saved and loaded."""

import io
import json

import torch
from ema_pytorch import EMA

torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
average = EMA(model, beta=0.9, update_after_step=1, update_every=1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(16, 4), torch.randn(16, 2)
losses = []
for _ in range(8):
    loss = (model(x) - y).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    average.update()
    losses.append([loss.item(), (average(x) - y).pow(2).mean().item()])
file = io.BytesIO()
torch.save(average.state_dict(), file)
file.seek(0)
other = EMA(torch.nn.Linear(4, 2), beta=0.9)
other.load_state_dict(torch.load(file))
assert losses[-1][0] < losses[0][0]
print(json.dumps([losses, other(x).flatten().tolist()]))
