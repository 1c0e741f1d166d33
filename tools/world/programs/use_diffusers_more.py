"""Schedulers, a conditional U-Net and autoencoders of diffusers."""

import json

import torch
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    DDPMScheduler,
    DPMSolverMultistepScheduler,
    EulerDiscreteScheduler,
    FlowMatchEulerDiscreteScheduler,
    UNet2DConditionModel,
    VQModel,
)

torch.manual_seed(0)
found = []
unet = UNet2DConditionModel(
    sample_size=8, in_channels=2, out_channels=2, layers_per_block=1, block_out_channels=(8, 16),
    down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
    up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), cross_attention_dim=8,
    attention_head_dim=4, norm_num_groups=4,
)  # fmt: skip
words = torch.randn(2, 3, 8)
noise = DDPMScheduler(num_train_timesteps=20)
optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-3)
clean = torch.randn(2, 2, 8, 8)
for times in (3, 11):
    added = torch.randn_like(clean)
    times = torch.full((2,), times)
    guess = unet(noise.add_noise(clean, added, times), times, words).sample
    loss = torch.nn.functional.mse_loss(guess, added)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
unet.eval()
kinds = (
    DDPMScheduler, DDIMScheduler, EulerDiscreteScheduler, DPMSolverMultistepScheduler,
    FlowMatchEulerDiscreteScheduler,
)  # fmt: skip
for kind in kinds:
    scheduler = kind(num_train_timesteps=20)
    scheduler.set_timesteps(3)
    generator = torch.Generator().manual_seed(0)
    sample = torch.randn(2, 2, 8, 8, generator=generator)
    for t in scheduler.timesteps:
        given = sample
        if hasattr(scheduler, "scale_model_input"):
            given = scheduler.scale_model_input(sample, t)
        with torch.no_grad():
            guess = unet(given, t, words).sample
        options = {"generator": generator} if kind is DDPMScheduler else {}
        sample = scheduler.step(guess, t, sample, **options).prev_sample
    found += [sample.mean().item(), sample.std().item()]
blocks = {
    "in_channels": 3, "out_channels": 3, "block_out_channels": (8, 8), "latent_channels": 2,
    "down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2,
    "norm_num_groups": 4,
}  # fmt: skip
image = torch.randn(1, 3, 16, 16)
kl = AutoencoderKL(**blocks)
posterior = kl.encode(image).latent_dist
latent = posterior.sample(generator=torch.Generator().manual_seed(0))
loss = (kl.decode(latent).sample - image).pow(2).mean() + posterior.kl().mean() / 1000
loss.backward()
found += [loss.item(), sum(p.grad.abs().sum().item() for p in kl.parameters()) / 1000]
kl.enable_tiling()
found.append(kl(image).sample.mean().item())
vq = VQModel(**blocks, num_vq_embeddings=8)
found.append(vq(image).sample.mean().item())
print(json.dumps(found))
