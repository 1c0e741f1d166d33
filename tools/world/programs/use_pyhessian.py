"""Eigenvalues of Hessians."""

import json

import torch
from pyhessian import hessian

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)).eval()
data = torch.randn(12, 4), torch.randint(0, 3, (12,))
found_of = hessian(model, torch.nn.CrossEntropyLoss(), data=data, cuda=False)
values, _ = found_of.eigenvalues(maxIter=60, tol=1e-6)
found = [abs(v) for v in values]
print(json.dumps(found))
