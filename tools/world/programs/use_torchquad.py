"""Quadrature on grids and by Monte Carlo."""

import json

import torch
from torchquad import Boole, Simpson, Trapezoid, set_up_backend

set_up_backend("torch", data_type="float64")
torch.set_default_device("cpu")
domain = [[0, 1], [-1, 1]]
found = []
for make in (Trapezoid, Simpson, Boole):
    found.append(
        make()
        .integrate(
            lambda x: torch.sin(x[:, 0]) + torch.exp(x[:, 1]),
            dim=2,
            N=1000,
            integration_domain=domain,
            backend="torch",
        )
        .item()
    )
print(json.dumps(found))
