"""Focal losses."""

import json

import torch
from focal_loss.focal_loss import FocalLoss

torch.manual_seed(0)
x = torch.randn(6, 4, requires_grad=True)
loss = FocalLoss(gamma=0.7)(torch.softmax(x, -1), torch.randint(0, 4, (6,)))
loss.backward()
found = [loss.item(), *x.grad.flatten().tolist()]
print(json.dumps(found))
