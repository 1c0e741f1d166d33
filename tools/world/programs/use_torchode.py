"""Ordinary differential equations in parallel."""

import json

import torch
import torchode as to

torch.manual_seed(0)


def f(t, y):
    return -0.5 * y


y0 = torch.tensor([[1.2], [5.0]])
times = torch.stack((torch.linspace(0, 5, 6), torch.linspace(3, 4, 6)))
term = to.ODETerm(f)
step = to.Dopri5(term=term)
solver = to.AutoDiffAdjoint(step, to.IntegralController(atol=1e-6, rtol=1e-3, term=term))
solution = solver.solve(to.InitialValueProblem(y0=y0, t_eval=times))
found = solution.ys.flatten().tolist() + solution.stats["n_steps"].tolist()
print(json.dumps(found))
