"""Neural differential equations of torchdyn."""

import json

import torch
from torchdyn.core import NeuralODE
from torchdyn.numerics import odeint

torch.manual_seed(0)
field = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
model = NeuralODE(field, solver="rk4", sensitivity="autograd")
x = torch.randn(12, 2)
y = x @ torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
span = torch.linspace(0, 1, 5)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
losses = []
for _ in range(5):
    optimizer.zero_grad()
    _, path = model(x, span)
    loss = (path[-1] - y).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0]
adjoint = NeuralODE(field, solver="dopri5", sensitivity="adjoint", atol=1e-4, rtol=1e-4)
_, path = adjoint(x, span)
path.square().sum().backward()
_, plain = odeint(lambda t, x: -x, torch.ones(3), span, solver="euler")
print(json.dumps([losses, path[-1].flatten().tolist(), plain.flatten().tolist()]))
