"""A neural controlled differential equation over cubic splines."""

import json

import torch
import torchcde

torch.manual_seed(0)
x = torch.randn(4, 10, 2)
coefficients = torchcde.hermite_cubic_coefficients_with_backward_differences(x)
path = torchcde.CubicSpline(coefficients)


class Field(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 6)

    def forward(self, t, z):
        return torch.tanh(self.linear(z)).view(4, 3, 2)


field = Field()
optimizer = torch.optim.Adam(field.parameters(), lr=1e-2)
found = []
for adjoint in (False, True, True):
    z = torchcde.cdeint(
        X=path,
        func=field,
        z0=torch.zeros(4, 3),
        t=path.interval,
        adjoint=adjoint,
        method="rk4",
        options={"step_size": 0.5},
    )
    loss = (z[:, -1] - 1).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
found.append(torchcde.natural_cubic_coeffs(x).sum().item())
print(json.dumps(found))
