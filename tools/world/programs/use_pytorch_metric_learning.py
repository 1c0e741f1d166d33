"""Metric learning: mined triplets, contrastive losses, a training step that falls."""

import json

import torch
from pytorch_metric_learning import losses as metric_losses
from pytorch_metric_learning import miners

torch.manual_seed(0)
model = torch.nn.Linear(6, 4)
x, labels = torch.randn(24, 6), torch.arange(24) % 4
miner, triplet = miners.MultiSimilarityMiner(), metric_losses.TripletMarginLoss()
others = [metric_losses.NTXentLoss(), metric_losses.ContrastiveLoss(), metric_losses.CircleLoss()]
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
values = []
for _ in range(6):
    found = model(x)
    loss = triplet(found, labels, miner(found, labels)) + others[0](found, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    values.append(loss.item())
assert values[-1] < values[0]
print(json.dumps([values, [other(model(x), labels).item() for other in others]]))
