"""Sparse mixtures: experts chosen by a router, with an auxiliary loss."""

import json

import torch
from mixture_of_experts import MoE
from soft_moe_pytorch import SoftMoE

torch.manual_seed(0)
sparse = MoE(dim=8, num_experts=4, hidden_dim=16)
soft = SoftMoE(dim=8, seq_len=6, num_experts=3)
x = torch.randn(2, 6, 8)
optimizer = torch.optim.Adam([*sparse.parameters(), *soft.parameters()], lr=1e-2)
found = []
for _ in range(3):
    mixed, extra = sparse(x)
    loss = (soft(mixed) - x).pow(2).mean() + extra
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
