"""A masked autoregressive flow of nflows."""

import json

import torch
from nflows.distributions.normal import StandardNormal
from nflows.flows.base import Flow
from nflows.transforms.autoregressive import MaskedAffineAutoregressiveTransform
from nflows.transforms.base import CompositeTransform
from nflows.transforms.permutations import ReversePermutation

torch.manual_seed(0)
steps = []
for _ in range(2):
    steps += [ReversePermutation(features=3)]
    steps += [MaskedAffineAutoregressiveTransform(features=3, hidden_features=8)]
flow = Flow(CompositeTransform(steps), StandardNormal(shape=[3]))
x = torch.randn(32, 3) * 0.5 + 1
optimizer = torch.optim.Adam(flow.parameters(), lr=1e-2)
losses = []
for _ in range(6):
    optimizer.zero_grad()
    loss = -flow.log_prob(inputs=x).mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0]
print(json.dumps([losses, flow.sample(2).tolist()]))
