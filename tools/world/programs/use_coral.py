"""Ordinal regression."""

import json

import torch
from coral_pytorch.dataset import corn_label_from_logits, levels_from_labelbatch, proba_to_label
from coral_pytorch.layers import CoralLayer
from coral_pytorch.losses import coral_loss, corn_loss

torch.manual_seed(0)
layer, linear = CoralLayer(4, 5), torch.nn.Linear(4, 4)
x, y = torch.randn(8, 4), torch.randint(0, 5, (8,))
optimizer = torch.optim.Adam([*layer.parameters(), *linear.parameters()], lr=1e-2)
found = []
for _ in range(3):
    levels = levels_from_labelbatch(y, num_classes=5)
    loss = coral_loss(layer(x), levels) + corn_loss(linear(x), y, 5)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
found += (
    proba_to_label(torch.sigmoid(layer(x))).float().tolist()
    + corn_label_from_logits(linear(x)).float().tolist()
)
print(json.dumps(found))
