"""Spiking neurons trained through surrogate gradients."""

import json

import snntorch as snn
import torch
from snntorch import functional as SF
from snntorch import spikegen, surrogate, utils

torch.manual_seed(0)
net = torch.nn.Sequential(
    torch.nn.Linear(6, 8),
    snn.Leaky(beta=0.9, init_hidden=True, spike_grad=surrogate.fast_sigmoid()),
    torch.nn.Linear(8, 2),
    snn.Leaky(beta=0.9, init_hidden=True, output=True, spike_grad=surrogate.fast_sigmoid()),
)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
x, y = torch.rand(4, 6), torch.tensor([0, 1, 1, 0])
found = []
for _ in range(3):
    utils.reset(net)
    spikes = []
    for _step in range(5):
        s, mem = net(x * 3)
        spikes.append(s)
    loss = SF.ce_rate_loss()(torch.stack(spikes), y) + mem.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
found.append(spikegen.rate(x, num_steps=3).sum().item())
print(json.dumps(found))
