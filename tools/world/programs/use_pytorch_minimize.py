"""Minimizers of pytorch-minimize."""

import json

import torch
from torchmin import minimize

found = []
x0 = torch.tensor([-1.0, 2.0], dtype=torch.float64)
rosen = lambda x: 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2
for method in ("bfgs", "l-bfgs", "cg", "newton-cg", "newton-exact", "trust-ncg", "trust-exact"):
    result = minimize(rosen, x0, method=method, max_iter=20)
    found += [result.fun.item(), result.x.tolist(), int(result.nit)]
print(json.dumps(found))
