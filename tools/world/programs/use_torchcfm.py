"""Conditional flow matching."""

import json

import torch
from torchcfm.conditional_flow_matching import ConditionalFlowMatcher, TargetConditionalFlowMatcher
from torchcfm.models.models import MLP

torch.manual_seed(0)
found = []
for matcher in (ConditionalFlowMatcher(sigma=0.1), TargetConditionalFlowMatcher(sigma=0.1)):
    model = MLP(dim=2, time_varying=True, w=16)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(3):
        x0, x1 = torch.randn(16, 2), torch.randn(16, 2) + 2
        t, xt, ut = matcher.sample_location_and_conditional_flow(x0, x1)
        loss = (model(torch.cat([xt, t[:, None]], -1)) - ut).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
print(json.dumps(found))
