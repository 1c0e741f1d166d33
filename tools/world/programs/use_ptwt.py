"""Wavelets with gradients."""

import json

import ptwt
import torch

torch.manual_seed(0)
x = torch.randn(2, 32, dtype=torch.float64, requires_grad=True)
parts = ptwt.wavedec(x, "db2", level=2, mode="zero")
loss = sum(part.abs().sum() for part in parts)
loss.backward()
found = [loss.item(), *x.grad[0].tolist()]
back = ptwt.waverec(parts, "db2")
found.append((back[..., :32] - x).abs().max().item())
image = torch.randn(1, 16, 16, dtype=torch.float64)
flat = ptwt.wavedec2(image, "haar", level=2)
found += [flat[0].sum().item(), flat[1][0].sum().item()]
print(json.dumps(found))
