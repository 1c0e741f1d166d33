"""BYOL around a small network."""

import json

import torch
from byol_pytorch import BYOL

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
net = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3, 2, 1),
    torch.nn.BatchNorm2d(8),
    torch.nn.ReLU(),
    torch.nn.Flatten(),
    torch.nn.Linear(8 * 64, 16),
    torch.nn.Linear(16, 4),
)
plain = torch.nn.Identity()
learner = BYOL(
    net,
    image_size=16,
    hidden_layer=-2,
    projection_size=8,
    projection_hidden_size=16,
    augment_fn=plain,
    augment_fn2=torch.nn.Hardtanh(),
)
learner = learner
images = torch.randn(4, 3, 16, 16)
learner(images)
optimizer = torch.optim.Adam(learner.parameters(), lr=1e-3)
found = []
for _ in range(4):
    optimizer.zero_grad()
    loss = learner(images)
    loss.backward()
    optimizer.step()
    learner.update_moving_average()
    found.append(loss.item())
print(json.dumps(found))
