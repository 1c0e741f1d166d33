"""posteriors: variational inference, stochastic gradient samplers, Laplace approximations."""

import json

import posteriors
import torch
import torchopt
from torch.func import functional_call

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
params = dict(model.named_parameters())
x = torch.randn(20, 3)
y = x @ torch.tensor([[1.0], [-1.0], [0.5]])


def log_posterior(params, batch):
    out = functional_call(model, params, (batch[0],))
    fit = -(out - batch[1]).square().mean()
    return fit + 0.01 * posteriors.diag_normal_log_prob(params), out


results = []
vi = posteriors.vi.diag.build(log_posterior, torchopt.adam(lr=1e-2), init_log_sds=-2.0)
state = vi.init(params)
for _ in range(5):
    state, _ = vi.update(state, (x, y))
results.append([v.flatten().tolist() for v in state.params.values()])
for sampler in (posteriors.sgmcmc.sgld, posteriors.sgmcmc.sghmc):
    transform = sampler.build(log_posterior, lr=1e-2)
    state = transform.init(params)
    for _ in range(4):
        state, _ = transform.update(state, (x, y))
    results.append([v.flatten().tolist() for v in state.params.values()])


def log_probs(params, batch):
    out = functional_call(model, params, (batch[0],))
    return -(out - batch[1]).square().sum(1), out


laplace = posteriors.laplace.diag_fisher.build(log_probs)
state, _ = laplace.update(laplace.init(params), (x, y))
results.append([v.flatten().tolist() for v in state.prec_diag.values()])
print(json.dumps(results))
