"""An invertible network, forwards and backwards."""

import json

import FrEIA.framework as Ff
import FrEIA.modules as Fm
import numpy as np
import torch

torch.manual_seed(0)
np.random.seed(0)


def subnet(before, after):
    return torch.nn.Sequential(
        torch.nn.Linear(before, 8), torch.nn.ReLU(), torch.nn.Linear(8, after)
    )


model = Ff.SequenceINN(4)
for _ in range(2):
    model.append(Fm.AllInOneBlock, subnet_constructor=subnet, permute_soft=True)
x = torch.randn(16, 4)


def loss_of():
    z, logdet = model(x)
    back, _ = model(z, rev=True)
    return (0.5 * z.pow(2).sum(1) - logdet).mean() + (back - x).pow(2).sum()


optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
found = []
for _ in range(3):
    loss = loss_of()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
