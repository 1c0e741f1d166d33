"""Pyro: NUTS, autoguides, a mixture by enumeration, predictive samples, a DPMM-free HMM."""

import json
import warnings

import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO, TraceEnum_ELBO, config_enumerate
from pyro.infer.autoguide import (
    AutoDiagonalNormal,
    AutoLowRankMultivariateNormal,
    AutoMultivariateNormal,
)

warnings.simplefilter("ignore")
pyro.set_rng_seed(0)
x = torch.randn(30, 2)
y = x @ torch.tensor([1.0, -2.0]) + 0.1 * torch.randn(30)


def model(x, y=None):
    w = pyro.sample("w", dist.Normal(torch.zeros(2), torch.ones(2)).to_event(1))
    s = pyro.sample("s", dist.HalfNormal(1.0))
    with pyro.plate("data", len(x)):
        return pyro.sample("y", dist.Normal(x @ w, s), obs=y)


found = {}
for make in (AutoDiagonalNormal, AutoMultivariateNormal, AutoLowRankMultivariateNormal):
    pyro.clear_param_store()
    pyro.set_rng_seed(1)
    guide = make(model)
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO())
    found[make.__name__] = [svi.step(x, y) for _ in range(5)]
    samples = Predictive(model, guide=guide, num_samples=4)(x)
    found[make.__name__].append(samples["y"].mean().item())


@config_enumerate
def mixture(data):
    weights = pyro.param("weights", torch.ones(2) / 2, constraint=dist.constraints.simplex)
    locs = pyro.param("locs", torch.tensor([-1.0, 1.0]))
    with pyro.plate("data", len(data)):
        k = pyro.sample("k", dist.Categorical(weights))
        pyro.sample("obs", dist.Normal(locs[k], 0.5), obs=data)


pyro.clear_param_store()
svi = SVI(
    mixture, lambda data: None, pyro.optim.Adam({"lr": 0.05}), TraceEnum_ELBO(max_plate_nesting=1)
)
found["mixture"] = [svi.step(torch.cat([x[:10, 0] - 2, x[10:20, 0] + 2])) for _ in range(4)]
pyro.set_rng_seed(2)
mcmc = MCMC(NUTS(model, max_tree_depth=3), num_samples=4, warmup_steps=4, disable_progbar=True)
mcmc.run(x, y)
found["nuts"] = mcmc.get_samples()["w"].mean(0).tolist()
trace = poutine.trace(
    poutine.condition(model, data={"w": torch.ones(2), "s": torch.tensor(1.0)})
).get_trace(x, y)
found["log"] = trace.log_prob_sum().item()
print(json.dumps(found))
