"""A neural ODE with torchdiffeq, through the solver and by the adjoint."""

import json

import torch
from torchdiffeq import odeint, odeint_adjoint

torch.manual_seed(0)


class Field(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)
        )

    def forward(self, t, y):
        return self.net(y)


field = Field()
times = torch.linspace(0, 1, 5)
start = torch.tensor([[1.0, 0.0]])
found = []
for solve, method in ((odeint, "dopri5"), (odeint, "rk4"), (odeint_adjoint, "dopri5")):
    field.zero_grad()
    path = solve(field, start, times, method=method)
    path.pow(2).sum().backward()
    found.append([path.tolist(), [p.grad.flatten().tolist() for p in field.parameters()]])
print(json.dumps(found))
