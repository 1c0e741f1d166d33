"""Grids of cubic splines whose control points are trained."""

import json

import torch
from torch_cubic_spline_grids import CubicBSplineGrid1d, CubicBSplineGrid2d, CubicCatmullRomGrid3d

torch.manual_seed(0)
grid = CubicBSplineGrid1d(resolution=6, n_channels=1)
t = torch.rand(40)
y = (t * 6).sin()[:, None]
optimizer = torch.optim.Adam(grid.parameters(), lr=0.1)
losses = []
for _ in range(10):
    optimizer.zero_grad()
    loss = (grid(t) - y).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0]
plane = CubicBSplineGrid2d.from_grid_data(torch.randn(1, 4, 5))
volume = CubicCatmullRomGrid3d.from_grid_data(torch.randn(2, 3, 4, 5))
found = plane(torch.rand(6, 2)), volume(torch.rand(4, 3))
print(json.dumps([losses, *(f.flatten().tolist() for f in found)]))
