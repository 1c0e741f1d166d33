"""Activations without aliasing and pooling that is invariant to shifts."""

import json

import antialiased_cnns
import torch
from alias_free_torch import Activation1d, Activation2d

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv2d(1, 4, 3, padding=1),
    Activation2d(torch.nn.SiLU()),
    antialiased_cnns.BlurPool(4, stride=2),
    torch.nn.MaxPool2d(kernel_size=2, stride=1),
    torch.nn.Flatten(),
    torch.nn.LazyLinear(2),
)
x = torch.randn(8, 1, 8, 8)
y = (x.mean((1, 2, 3)) > 0).long()
model(x)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
losses = []
for _ in range(5):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0]
sound = Activation1d(torch.nn.LeakyReLU(0.1))(torch.randn(1, 2, 16))
line = antialiased_cnns.BlurPool1D(2)(torch.randn(1, 2, 9))
print(json.dumps([losses, sound.flatten().tolist(), line.flatten().tolist()]))
