"""Spiking layers of Sinabs: a converted network and a trained one."""

import json

import sinabs
import sinabs.layers as sl
import torch
from sinabs.from_torch import from_model

torch.manual_seed(0)
ann = torch.nn.Sequential(
    torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2), torch.nn.ReLU()
)
snn = from_model(ann, input_shape=(4,), batch_size=2, add_spiking_output=False)
found = [snn.spiking_model(torch.rand(20, 4)).sum().item()]
net = torch.nn.Sequential(
    torch.nn.Linear(4, 8), sl.LIF(tau_mem=10.0), torch.nn.Linear(8, 2), sl.ExpLeak(tau_mem=10.0)
)
x = torch.rand(3, 10, 4)
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
for _ in range(3):
    sinabs.reset_states(net)
    optimizer.zero_grad()
    loss = (net(x).mean(1) - 1).pow(2).mean()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
