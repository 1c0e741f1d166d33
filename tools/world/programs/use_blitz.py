"""Bayesian networks with variational layers."""

import json

import torch
from blitz.modules import BayesianLinear, BayesianLSTM
from blitz.utils import variational_estimator

torch.manual_seed(0)


@variational_estimator
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = BayesianLSTM(3, 4), BayesianLinear(4, 1)

    def forward(self, x):
        return self.last(self.first(x)[0][:, -1])


net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
x, y, found = torch.randn(4, 5, 3), torch.randn(4, 1), []
for _ in range(3):
    loss = net.sample_elbo(
        inputs=x, labels=y, criterion=torch.nn.MSELoss(), sample_nbr=2, complexity_cost_weight=1e-3
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
