"""GPyTorch: a variational process, several tasks, deep kernels, grids of structure."""

import json
import warnings

import gpytorch
import torch
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy

warnings.simplefilter("ignore")
torch.manual_seed(0)
x = torch.linspace(0, 1, 24)
y = torch.sin(6 * x)
found = {}


class Sparse(gpytorch.models.ApproximateGP):
    def __init__(self, points):
        strategy = VariationalStrategy(
            self,
            points,
            CholeskyVariationalDistribution(len(points)),
            learn_inducing_locations=True,
        )
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=1.5))

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def fit(name, model, likelihood, criterion, inputs, targets):
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.05)
    model.train(), likelihood.train()
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = -criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval(), likelihood.eval()
    with torch.no_grad():
        prediction = likelihood(model(inputs[:4]))
        found[name] = [
            *losses,
            prediction.mean.flatten().tolist(),
            prediction.variance.flatten().tolist(),
        ]


likelihood = gpytorch.likelihoods.GaussianLikelihood()
model = Sparse(x[::4].clone())
fit("sparse", model, likelihood, gpytorch.mlls.VariationalELBO(likelihood, model, 24), x, y)
bernoulli = gpytorch.likelihoods.BernoulliLikelihood()
model = Sparse(x[::4].clone())
fit(
    "classes",
    model,
    bernoulli,
    gpytorch.mlls.PredictiveLogLikelihood(bernoulli, model, 24),
    x,
    (y > 0).float(),
)


class Tasks(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.MultitaskMean(gpytorch.means.ConstantMean(), num_tasks=2)
        self.covar_module = gpytorch.kernels.MultitaskKernel(
            gpytorch.kernels.RBFKernel(), num_tasks=2, rank=1
        )

    def forward(self, x):
        return gpytorch.distributions.MultitaskMultivariateNormal(
            self.mean_module(x), self.covar_module(x)
        )


likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(num_tasks=2)
both = torch.stack([y, y.cos()], -1)
model = Tasks(x, both, likelihood)
fit(
    "tasks", model, likelihood, gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model), x, both
)
print(json.dumps(found))
