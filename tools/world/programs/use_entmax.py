"""Sparse softmaxes and their losses."""

import json

import torch
from entmax import entmax15, entmax_bisect, sparsemax
from entmax.losses import Entmax15Loss, SparsemaxLoss

torch.manual_seed(0)
x = torch.randn(4, 6, requires_grad=True)
target = torch.tensor([0, 3, 2, 5])
found = [sparsemax(x, -1), entmax15(x, -1), entmax_bisect(x, 1.7, -1)]
losses = [SparsemaxLoss()(x, target).mean(), Entmax15Loss()(x, target).mean()]
(sum((f**2).sum() for f in found) + sum(losses)).backward()
print(json.dumps([[f.tolist() for f in found], [v.item() for v in losses], x.grad.tolist()]))
