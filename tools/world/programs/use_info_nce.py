"""The InfoNCE loss, with its own and with given negatives."""

import json

import torch
from info_nce import InfoNCE, info_nce

torch.manual_seed(0)
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
anchors = torch.randn(16, 8)
near = anchors + 0.1 * torch.randn(16, 8)
loss_of = InfoNCE()
losses = []
for _ in range(8):
    optimizer.zero_grad()
    loss = loss_of(model(anchors), model(near))
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0]
pairs = InfoNCE(negative_mode="paired", reduction="none")
other = pairs(model(anchors), model(near), model(torch.randn(16, 5, 8)))
plain = info_nce(model(anchors), model(near), model(torch.randn(7, 8)), temperature=0.2)
errors = []
try:
    info_nce(anchors, near[:3])
except ValueError as error:
    errors.append(len(str(error)))
print(json.dumps([losses, other.tolist(), plain.item(), errors]))
