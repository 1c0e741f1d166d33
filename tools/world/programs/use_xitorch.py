"""Differentiable root finding, linear solves, quadrature and interpolation."""

import json

import torch
import xitorch
from xitorch.integrate import quad, solve_ivp
from xitorch.interpolate import Interp1D
from xitorch.linalg import solve, symeig
from xitorch.optimize import rootfinder

torch.manual_seed(0)
found = []
a = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
root = rootfinder(lambda y, a: y**3 - a, torch.ones(1, dtype=torch.float64), params=(a,))
root.sum().backward()
found += [root.item(), a.grad.item()]
matrix = torch.randn(4, 4, dtype=torch.float64)
matrix = (matrix @ matrix.T + 4 * torch.eye(4, dtype=torch.float64)).requires_grad_()
operator = xitorch.LinearOperator.m(matrix, is_hermitian=True)
x = solve(operator, torch.ones(4, 1, dtype=torch.float64))
x.sum().backward()
found += [x.flatten().tolist(), matrix.grad.sum().item()]
values, vectors = symeig(operator, neig=2, mode="lowest")
found += values.tolist()
found.append(quad(lambda x, a: torch.sin(a * x), 0.0, 1.0, params=(a,)).item())
t = torch.linspace(0, 1, 5, dtype=torch.float64)
found += (
    solve_ivp(lambda t, y, a: -a * y, t, torch.ones(1, dtype=torch.float64), params=(a,))
    .flatten()
    .tolist()
)
spline = Interp1D(t, torch.sin(t), method="cspline")
found += spline(torch.tensor([0.1, 0.55], dtype=torch.float64)).tolist()
print(json.dumps(found))
