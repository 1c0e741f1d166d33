"""A conditional random field over sequences of labels."""

import json

import torch
from torchcrf import CRF

torch.manual_seed(0)
crf = CRF(4, batch_first=True)
linear = torch.nn.Linear(6, 4)
x, tags = torch.randn(3, 5, 6), torch.randint(0, 4, (3, 5))
mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 0, 0, 0]], dtype=torch.bool)
optimizer = torch.optim.SGD([*crf.parameters(), *linear.parameters()], lr=0.05)
found = []
for _ in range(4):
    loss = -crf(linear(x), tags, mask=mask, reduction="mean")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
found += [float(t) for row in crf.decode(linear(x), mask=mask) for t in row]
print(json.dumps(found))
