"""A normalizing flow of affine couplings, trained by maximum likelihood."""

import json

import normflows as nf
import torch

torch.manual_seed(0)
base = nf.distributions.base.DiagGaussian(2)
layers = []
for _ in range(4):
    net = nf.nets.MLP([1, 16, 16, 2], init_zeros=True)
    layers += [nf.flows.AffineCouplingBlock(net), nf.flows.Permute(2, mode="swap")]
model = nf.NormalizingFlow(base, layers)
x = torch.randn(64, 2) @ torch.tensor([[1.0, 0.5], [0.0, 0.3]])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
losses = []
for _ in range(8):
    loss = model.forward_kld(x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0]
samples, density = model.sample(3)
print(json.dumps([losses, samples.tolist(), density.tolist()]))
