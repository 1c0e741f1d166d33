"""Deformable attention over lines, images and volumes."""

import json

import torch
from deformable_attention import DeformableAttention1D, DeformableAttention2D, DeformableAttention3D

torch.manual_seed(0)
options = {"dim": 8, "dim_head": 4, "heads": 2, "offset_groups": 2}
plane = DeformableAttention2D(**options, downsample_factor=2, offset_kernel_size=4)
line = DeformableAttention1D(**options, downsample_factor=2, offset_kernel_size=4)
volume = DeformableAttention3D(**options, downsample_factor=(2, 2, 2), offset_kernel_size=(4, 4, 4))
x = torch.randn(2, 8, 8, 8)
optimizer = torch.optim.Adam(plane.parameters(), lr=1e-2)
losses = []
for _ in range(4):
    optimizer.zero_grad()
    loss = (plane(x) - x).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0]
with torch.no_grad():
    out, grid = plane(x, return_vgrid=True)
    more = [line(torch.randn(1, 8, 16)).sum(), volume(torch.randn(1, 8, 4, 4, 4)).sum()]
print(json.dumps([losses, out[0, 0].tolist(), grid[0, 0].tolist(), torch.stack(more).tolist()]))
