"""Structural similarity of images, as a loss."""

import json

import torch
from pytorch_msssim import SSIM, ms_ssim, ssim

torch.manual_seed(0)
x = torch.rand(2, 3, 192, 192)
y = (x + 0.1 * torch.randn_like(x)).clamp(0, 1).requires_grad_()
values = [ssim(x, y, data_range=1.0), ms_ssim(x, y, data_range=1.0), SSIM(data_range=1.0)(x, y)]
(3 - sum(values)).backward()
print(json.dumps([[v.item() for v in values], y.grad.abs().sum().item()]))
