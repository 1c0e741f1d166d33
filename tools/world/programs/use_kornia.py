"""Filters, color, geometry and losses of kornia, with gradients."""

import json

import kornia
import torch

torch.manual_seed(0)
image = torch.rand(2, 3, 12, 12, requires_grad=True)
gray = kornia.color.rgb_to_grayscale(image)
blurred = kornia.filters.gaussian_blur2d(image, (3, 3), (1.0, 1.0))
edges = kornia.filters.sobel(gray)
turned = kornia.geometry.transform.rotate(image, torch.tensor([30.0, -45.0]))
hsv = kornia.color.rgb_to_hsv(image)
ssim = kornia.losses.ssim_loss(image, blurred.detach(), 5)
loss = blurred.mean() + edges.mean() + turned.mean() + hsv.mean() + ssim
loss.backward()
print(json.dumps([loss.item(), image.grad.flatten().tolist(), turned.flatten().tolist()]))
