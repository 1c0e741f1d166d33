"""A step of Bayesian optimization with botorch."""

import json
import warnings

import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood

warnings.simplefilter("ignore")
torch.manual_seed(0)
x = torch.rand(8, 2, dtype=torch.float64)
y = -((x - 0.4) ** 2).sum(-1, keepdim=True)
model = SingleTaskGP(x, y)
fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
mean = model.posterior(x).mean.flatten()
acquisition = LogExpectedImprovement(model, best_f=y.max())
value = acquisition(torch.full((1, 1, 2), 0.5, dtype=torch.float64))
bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
candidate, _ = optimize_acqf(acquisition, bounds=bounds, q=1, num_restarts=2, raw_samples=8)
numbers = [*mean.tolist(), value.item(), *candidate.flatten().tolist()]
print(json.dumps([round(number, 3) for number in numbers]))
