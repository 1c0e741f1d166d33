"""Losses balanced by the number of samples of a class."""

import json

import torch
from balanced_loss import Loss

torch.manual_seed(0)
x = torch.randn(30, 4)
labels = (x[:, 0] > 0).long() + (x[:, 1] > 1).long()
counts = torch.bincount(labels, minlength=3).tolist()
results = []
for kind in ("cross_entropy", "focal_loss", "binary_cross_entropy"):
    torch.manual_seed(1)
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss_of = Loss(kind, samples_per_class=counts, class_balanced=True)
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        loss = loss_of(model(x), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    results.append(losses)
print(json.dumps(results))
