"""A temporal convolutional network."""

import json

import torch
from pytorch_tcn import TCN

torch.manual_seed(0)
model = TCN(num_inputs=3, num_channels=[4, 4], kernel_size=2, dropout=0.0)
x = torch.randn(2, 3, 10)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
found = []
for _ in range(3):
    loss = (model(x)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
