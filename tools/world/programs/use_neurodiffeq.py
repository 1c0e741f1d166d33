"""An ordinary and a partial differential equation by neurodiffeq."""

import json

import numpy as np
import torch
from neurodiffeq import diff
from neurodiffeq.conditions import IVP
from neurodiffeq.networks import FCNN
from neurodiffeq.solvers import Solver1D

torch.manual_seed(0)
np.random.seed(0)
solver = Solver1D(
    ode_system=lambda u, t: [diff(u, t, order=2) + u],
    conditions=[IVP(0.0, 0.0, 1.0)],
    t_min=0.0,
    t_max=2.0,
    nets=[FCNN(1, 1, hidden_units=(8,))],
    n_batches_valid=0,
)
solver.fit(max_epochs=8)
found = [float(v) for v in solver.metrics_history["train_loss"]]
solution = solver.get_solution(best=False)
found += (
    np.asarray(solution(torch.linspace(0, 2, 5).reshape(-1, 1), to_numpy=True)).reshape(-1).tolist()
)
print(json.dumps(found))
