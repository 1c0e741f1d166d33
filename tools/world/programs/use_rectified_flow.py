"""Rectified flow: training steps of a velocity network, and samples."""

import json

import torch
from rectified_flow_pytorch import RectifiedFlow, Unet

torch.manual_seed(0)
model = Unet(dim=16, dim_mults=(1, 2), flash_attn=False)
flow = RectifiedFlow(model)
images = torch.rand(2, 3, 16, 16)
optimizer = torch.optim.Adam(flow.parameters(), lr=1e-3)
found = []
for _ in range(3):
    optimizer.zero_grad()
    loss = flow(images)
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
