"""Flow matching."""

import json

import torch
from flow_matching.path import CondOTProbPath
from flow_matching.solver import ODESolver
from flow_matching.utils import ModelWrapper

torch.manual_seed(0)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Linear(3, 16), torch.nn.SiLU(), torch.nn.Linear(16, 2)
        )

    def forward(self, x, t, **extras):
        return self.body(torch.cat([x, t.reshape(-1, 1).expand(len(x), 1)], 1))


net, path = Net(), CondOTProbPath()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
found = []
for _ in range(3):
    target, noise, t = torch.randn(16, 2) + 2, torch.randn(16, 2), torch.rand(16)
    sample = path.sample(t=t, x_0=noise, x_1=target)
    loss = (net(sample.x_t, sample.t) - sample.dx_t).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
solver = ODESolver(velocity_model=ModelWrapper(net))
found += (
    solver.sample(x_init=torch.randn(2, 2), method="midpoint", step_size=0.25).flatten().tolist()
)
print(json.dumps(found))
