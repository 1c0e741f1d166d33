"""Per-sample gradients and diagonals of curvature by BackPACK."""

import json

import torch
from backpack import backpack, extend
from backpack.extensions import KFAC, BatchGrad, DiagGGNExact, DiagHessian, Variance
from torch import nn

torch.manual_seed(0)
model = extend(nn.Sequential(nn.Linear(4, 5), nn.Sigmoid(), nn.Linear(5, 3)))
loss_function = extend(nn.CrossEntropyLoss())
x = torch.randn(6, 4)
y = torch.randint(0, 3, (6,))
loss = loss_function(model(x), y)
with backpack(BatchGrad(), DiagGGNExact(), Variance(), DiagHessian(), KFAC(mc_samples=1)):
    loss.backward()
found = [loss.item()]
for p in model.parameters():
    found += [
        p.grad_batch.sum().item(),
        p.diag_ggn_exact.sum().item(),
        p.variance.sum().item(),
        p.diag_h.sum().item(),
    ]
print(json.dumps(found))
