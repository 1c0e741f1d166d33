"""Differentially private SGD with opacus: per-sample gradients, clipping, accounting."""

import json
import warnings

import torch
from opacus import PrivacyEngine

warnings.simplefilter("ignore")
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(32, 4), torch.randint(0, 2, (32,)))
loader = torch.utils.data.DataLoader(data, batch_size=8)
engine = PrivacyEngine()
net, optimizer, loader = engine.make_private(
    module=net, optimizer=optimizer, data_loader=loader, noise_multiplier=0.0, max_grad_norm=1.0,
    poisson_sampling=False,
)  # fmt: skip
losses = []
for x, y in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    samples = [p.grad_sample.norm().item() for p in net.parameters()]
    optimizer.step()
    losses.append(loss.item())
print(json.dumps([losses, samples, [p.norm().item() for p in net.parameters()]]))
