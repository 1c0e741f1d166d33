"""Exact Gaussian process regression with gpytorch."""

import json

import gpytorch
import torch

torch.manual_seed(0)
x = torch.linspace(0, 1, 15)
y = torch.sin(6 * x) + 0.1 * torch.randn(15)


class Model(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean = gpytorch.means.ConstantMean()
        self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))


likelihood = gpytorch.likelihoods.GaussianLikelihood()
model = Model(x, y, likelihood)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
losses = []
for _ in range(10):
    optimizer.zero_grad()
    loss = -objective(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
model.eval()
likelihood.eval()
with torch.no_grad():
    prediction = likelihood(model(torch.linspace(0, 1, 7)))
assert losses[-1] < losses[0]
print(json.dumps([losses, prediction.mean.tolist(), prediction.variance.tolist()]))
