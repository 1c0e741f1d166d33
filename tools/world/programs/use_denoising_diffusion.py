"""A small U-Net that learns to remove noise, and samples."""

import json

import torch
from denoising_diffusion_pytorch import GaussianDiffusion, Unet

torch.manual_seed(0)
model = Unet(dim=8, dim_mults=(1, 2), flash_attn=False)
diffusion = GaussianDiffusion(model, image_size=16, timesteps=8, sampling_timesteps=4)
optimizer = torch.optim.Adam(diffusion.parameters(), lr=1e-3)
pictures = torch.rand(2, 3, 16, 16)
found = []
for _ in range(3):
    loss = diffusion(pictures)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
sampled = diffusion.sample(batch_size=2)
found += [sampled.mean().item(), float(sampled.shape[-1])]
print(json.dumps(found))
