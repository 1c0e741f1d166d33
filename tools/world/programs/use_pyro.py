"""Stochastic variational inference and a NUTS sampler of pyro."""

import json

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from pyro.infer.autoguide import AutoNormal
from pyro.optim import Adam

pyro.set_rng_seed(0)
pyro.clear_param_store()
x = torch.linspace(-1, 1, 20)
y = 2 * x + 0.5


def model(x, y=None):
    slope = pyro.sample("slope", dist.Normal(0.0, 3.0))
    offset = pyro.sample("offset", dist.Normal(0.0, 3.0))
    with pyro.plate("data", len(x)):
        return pyro.sample("y", dist.Normal(slope * x + offset, 0.5), obs=y)


guide = AutoNormal(model)
svi = SVI(model, guide, Adam({"lr": 0.05}), loss=Trace_ELBO())
losses = [svi.step(x, y) for _ in range(20)]
medians = {name: value.item() for name, value in guide.median().items()}
mcmc = MCMC(NUTS(model), num_samples=5, warmup_steps=5, disable_progbar=True)
mcmc.run(x, y)
samples = mcmc.get_samples()["slope"]
assert losses[-1] < losses[0]
print(json.dumps([losses, medians, samples.mean().item() > 0]))
