"""Light and heavy branches by a differentiable top-k."""

import json

import torch
from colt5_attention import ConditionalRoutedFeedForward

torch.manual_seed(0)
model = ConditionalRoutedFeedForward(8, num_heavy_tokens=4, light_ff_mult=0.5, heavy_ff_mult=2)
x = torch.randn(2, 16, 8)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
found = []
for _ in range(3):
    loss = model(x).sub(1).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
