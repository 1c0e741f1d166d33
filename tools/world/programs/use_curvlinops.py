"""Products with the Hessian and the Gauss-Newton matrix by curvlinops."""

import json

import torch
from curvlinops import GGNLinearOperator, HessianLinearOperator
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1)).double()
x = torch.randn(6, 4).double()
y = torch.randn(6, 1).double()
parameters = list(model.parameters())
found = []
for C in (HessianLinearOperator, GGNLinearOperator):
    H = C(model, nn.MSELoss(), parameters, [(x, y)])
    v = torch.arange(H.shape[1]).double()
    o = H @ v
    found.append(float(abs(o).sum()))
print(json.dumps(found))
