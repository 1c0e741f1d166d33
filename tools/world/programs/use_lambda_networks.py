"""Lambda layers."""

import json

import torch
from lambda_networks import LambdaLayer

torch.manual_seed(0)
model = torch.nn.Sequential(LambdaLayer(dim=8, dim_out=8, r=3, dim_k=4, heads=2, dim_u=1))
x = torch.randn(2, 8, 6, 6)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
found = []
for _ in range(3):
    loss = (model(x)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
