"""Neural posterior estimation with a flow."""

import json

import torch
from lampe.inference import NPE, NRE, NPELoss, NRELoss
from lampe.utils import GDStep

results = []
for make, loss_of in ((NPE, NPELoss), (NRE, NRELoss)):
    torch.manual_seed(0)
    theta = torch.rand(32, 2)
    x = theta @ torch.randn(2, 3) + 0.1 * torch.randn(32, 3)
    options = {"transforms": 2} if make is NPE else {}
    estimator = make(2, 3, hidden_features=(16, 16), **options)
    step = GDStep(torch.optim.Adam(estimator.parameters(), lr=1e-2), clip=1.0)
    criterion = loss_of(estimator)
    losses = [step(criterion(theta, x)).item() for _ in range(5)]
    assert losses[-1] < losses[0]
    results.append(losses)
    if make is NPE:
        with torch.no_grad():
            results.append(estimator.flow(x[0]).sample((3,)).flatten().tolist())
print(json.dumps(results))
