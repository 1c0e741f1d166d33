"""Image quality as a loss: SSIM, PSNR, TV and MS-SSIM's relatives."""

import json

import piqa
import torch

torch.manual_seed(0)
target = torch.rand(2, 3, 32, 32)
image = torch.rand(2, 3, 32, 32, requires_grad=True)
found = []
for make in (piqa.SSIM, piqa.PSNR, piqa.HaarPSI, piqa.GMSD, piqa.MDSI):
    found.append(make()(image.clamp(0, 1), target).item())
found.append(piqa.TV()(image).item())
criterion = piqa.SSIM()
optimizer = torch.optim.Adam([image], lr=0.01)
for _ in range(4):
    optimizer.zero_grad()
    loss = 1 - criterion(image.clamp(0, 1), target)
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
