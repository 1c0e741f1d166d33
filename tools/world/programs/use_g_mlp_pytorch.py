"""gMLP on tokens and images."""

import json

import torch
from g_mlp_pytorch import gMLP

torch.manual_seed(0)
model = gMLP(num_tokens=20, dim=16, depth=2, seq_len=8, act=torch.nn.Tanh())
x = torch.randint(0, 20, (2, 8))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
found = []
for _ in range(3):
    loss = (model(x)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
