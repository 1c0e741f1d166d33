"""Structured distributions: chains, trees, grammars."""

import json

import torch
from torch_struct import LinearChainCRF, TreeCRF

torch.manual_seed(0)
weights = torch.nn.Parameter(torch.randn(2, 5, 3, 3))
optimizer = torch.optim.Adam([weights], lr=0.1)
target = LinearChainCRF(torch.randn(2, 5, 3, 3)).argmax.detach()
losses = []
for _ in range(6):
    optimizer.zero_grad()
    loss = -LinearChainCRF(weights).log_prob(target).mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0]
chain = LinearChainCRF(weights.detach())
spans = TreeCRF(torch.randn(1, 4, 4, 2))
print(
    json.dumps(
        [
            losses, chain.marginals.flatten().tolist(), chain.entropy.tolist(),
            chain.max.tolist(), chain.argmax.sum().item(), chain.kmax(2).tolist(),
            spans.partition.tolist(), spans.marginals.sum().item(),
        ]
    )
)  # fmt: skip
