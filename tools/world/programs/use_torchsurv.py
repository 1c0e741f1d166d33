"""Survival losses and metrics of TorchSurv."""

import json

import torch
from torchsurv.loss.cox import neg_partial_log_likelihood
from torchsurv.loss.weibull import neg_log_likelihood_weibull
from torchsurv.metrics.auc import Auc
from torchsurv.metrics.cindex import ConcordanceIndex

torch.manual_seed(0)
x, time, event = torch.randn(32, 4), torch.rand(32) * 10, torch.rand(32) > 0.3
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
found = []
for _ in range(3):
    optimizer.zero_grad()
    loss = neg_partial_log_likelihood(model(x), event, time)
    loss.backward()
    optimizer.step()
    found.append(loss.item())
weibull = torch.nn.Linear(4, 2)
found.append(neg_log_likelihood_weibull(weibull(x), event, time).item())
cindex = ConcordanceIndex()
found += [
    cindex(model(x).detach(), event, time).item(),
    Auc()(model(x).detach(), event, time).mean().item(),
]
print(json.dumps(found))
