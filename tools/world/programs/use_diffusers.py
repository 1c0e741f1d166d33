"""A small UNet of diffusers: a training step, then sampling with DDPM and DDIM."""

import json

import torch
from diffusers import DDIMScheduler, DDPMPipeline, DDPMScheduler, UNet2DModel

torch.manual_seed(0)
unet = UNet2DModel(
    sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8, 16),
    norm_num_groups=4, down_block_types=("DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=8,
)  # fmt: skip
scheduler = DDPMScheduler(num_train_timesteps=50)
optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-2)
x = torch.randn(4, 1, 8, 8)
noise = torch.randn_like(x)
steps = torch.randint(0, 50, (4,))
losses = []
for _ in range(3):
    noisy = scheduler.add_noise(x, noise, steps)
    loss = torch.nn.functional.mse_loss(unet(noisy, steps).sample, noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0]
unet.eval()
pipeline = DDPMPipeline(unet=unet, scheduler=scheduler)
pipeline.set_progress_bar_config(disable=True)
images = pipeline(
    batch_size=1, generator=torch.Generator().manual_seed(0), num_inference_steps=4,
    output_type="np",
).images  # fmt: skip
ddim = DDIMScheduler(num_train_timesteps=50)
ddim.set_timesteps(5)
sample = torch.randn(1, 1, 8, 8, generator=torch.Generator().manual_seed(1))
with torch.no_grad():
    for t in ddim.timesteps:
        sample = ddim.step(unet(sample, t).sample, t, sample).prev_sample
print(json.dumps([losses, images.tolist(), sample.tolist()]))
