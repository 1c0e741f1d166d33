"""Vision transformers of vit-pytorch."""

import json

import torch
from vit_pytorch import SimpleViT, ViT

torch.manual_seed(0)
x, y = torch.randn(2, 3, 16, 16), torch.tensor([0, 1])
found = []
for kind in (ViT, SimpleViT):
    net = kind(image_size=16, patch_size=8, num_classes=4, dim=32, depth=2, heads=2, mlp_dim=32)
    loss = torch.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    found.append([loss.item(), [p.grad.norm().item() for p in net.parameters()]])
print(json.dumps(found))
