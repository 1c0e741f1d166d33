"""Parameters on manifolds, with optimizers that keep them there."""

import json

import geoopt
import torch

torch.manual_seed(0)
found = []
ball, sphere, stiefel = geoopt.PoincareBall(c=1.0), geoopt.Sphere(), geoopt.Stiefel()
points = geoopt.ManifoldParameter(
    ball.expmap0(torch.randn(5, 2, dtype=torch.float64) * 0.3), manifold=ball
)
direction = geoopt.ManifoldParameter(
    sphere.projx(torch.randn(4, dtype=torch.float64)), manifold=sphere
)
frame = geoopt.ManifoldParameter(
    stiefel.projx(torch.randn(4, 2, dtype=torch.float64)), manifold=stiefel
)
matrix = torch.randn(4, 4, dtype=torch.float64)
matrix = matrix + matrix.T
for kind in (geoopt.optim.RiemannianAdam, geoopt.optim.RiemannianSGD):
    optimizer = kind([points, direction, frame], lr=1e-2)
    for _ in range(4):
        optimizer.zero_grad()
        loss = ball.dist(points[:-1], points[1:]).pow(2).sum()
        loss = loss + direction @ matrix @ direction + torch.trace(frame.T @ matrix @ frame)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
found += [direction.norm().item(), (frame.T @ frame).sum().item(), float(points.norm())]
found += ball.mobius_add(points[0], points[1]).tolist()
print(json.dumps(found))
