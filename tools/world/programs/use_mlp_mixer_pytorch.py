"""An MLP-mixer."""

import json

import torch
from mlp_mixer_pytorch import MLPMixer

torch.manual_seed(0)
model = MLPMixer(
    image_size=16, channels=3, patch_size=4, dim=16, depth=2, num_classes=4, dropout=0.0
)
x = torch.randn(2, 3, 16, 16)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
found = []
for _ in range(3):
    loss = (model(x)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
