"""U-Net in two and three dimensions."""

import json

import torch
from unet import UNet2D, UNet3D

found = []
for make, rank in ((UNet2D, 2), (UNet3D, 3)):
    torch.manual_seed(0)
    model = make(
        in_channels=1,
        out_classes=2,
        num_encoding_blocks=2,
        out_channels_first_layer=4,
        normalization="batch",
        padding=1,
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x = torch.randn(2, 1, *(8,) * rank)
    y = (x[:, 0] > 0).long()
    for _ in range(3):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
print(json.dumps(found))
