"""A mixture of experts with a router's balance and z-losses."""

import json

import torch
from st_moe_pytorch import MoE, SparseMoEBlock

torch.manual_seed(0)
moe = MoE(dim=8, num_experts=4, gating_top_n=2, threshold_train=0.2, expert_hidden_mult=2)
block = SparseMoEBlock(moe, add_ff_before=True, add_ff_after=True)
x = torch.randn(2, 12, 8)
y = x.roll(1, -1)
optimizer = torch.optim.Adam(block.parameters(), lr=1e-2)
losses = []
for _ in range(6):
    optimizer.zero_grad()
    out, aux, balance, router_z = block(x)
    loss = (out - y).square().mean() + aux
    loss.backward()
    optimizer.step()
    losses.append([loss.item(), balance.item(), router_z.item()])
assert losses[-1][0] < losses[0][0]
print(json.dumps(losses))
