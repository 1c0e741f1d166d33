"""Causal structure by DAGMA."""

import json

import numpy as np
import torch
from dagma.nonlinear import DagmaMLP, DagmaNonlinear

torch.manual_seed(0)
x = np.random.default_rng(0).normal(size=(40, 4))
x[:, 1] += 2 * x[:, 0]
model = DagmaNonlinear(DagmaMLP(dims=[4, 5, 1], bias=True, dtype=torch.double), dtype=torch.double)
w = model.fit(x, lambda1=0.02, lambda2=0.005, T=1, max_iter=200, warm_iter=100)
print(json.dumps(w.tolist()))
