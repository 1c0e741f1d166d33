"""Losses and heads of self-supervised learning."""

import json

import torch
from lightly.loss import (
    BarlowTwinsLoss,
    DINOLoss,
    NegativeCosineSimilarity,
    NTXentLoss,
    VICRegLoss,
)
from lightly.models.modules import BYOLPredictionHead, SimCLRProjectionHead
from lightly.models.utils import deactivate_requires_grad, update_momentum

torch.manual_seed(0)
net = torch.nn.Sequential(
    torch.nn.Flatten(), torch.nn.Linear(48, 32), SimCLRProjectionHead(32, 32, 16)
)
target = torch.nn.Sequential(
    torch.nn.Flatten(), torch.nn.Linear(48, 32), SimCLRProjectionHead(32, 32, 16)
)
deactivate_requires_grad(target)
head = BYOLPredictionHead(16, 32, 16)
optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.05)
x0, x1 = torch.randn(8, 3, 4, 4), torch.randn(8, 3, 4, 4)
found = []
for loss_of in (
    NTXentLoss(),
    NTXentLoss(memory_bank_size=(16, 16)),
    BarlowTwinsLoss(),
    VICRegLoss(),
    NegativeCosineSimilarity(),
):
    for _ in range(2):
        z0, z1 = net(x0), net(x1)
        if isinstance(loss_of, NegativeCosineSimilarity):
            z0, z1 = head(z0), target(x1)
        loss = loss_of(z0, z1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        update_momentum(net, target, m=0.9)
        found.append(loss.item())
dino = DINOLoss(output_dim=16, warmup_teacher_temp_epochs=5)
found.append(dino([net(x0), net(x1)], [net(x0), net(x1)], epoch=1).item())
print(json.dumps(found))
