"""Denoising diffusion of points on a circle: noise prediction, then sampling."""

import math

import torch
from torch import nn

STEPS = 10


class Denoiser(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.embed = nn.Embedding(STEPS, width)
        self.enter = nn.Linear(2, width)
        self.body = nn.Sequential(nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.leave = nn.Linear(width, 2)

    def forward(self, x, t):
        return self.leave(self.body(self.enter(x) + self.embed(t)))


def train(steps=12):
    torch.manual_seed(4)
    betas = torch.linspace(1e-3, 0.2, STEPS)
    kept = (1 - betas).cumprod(0)
    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        angle = torch.rand(32) * 2 * math.pi
        clean = torch.stack([angle.cos(), angle.sin()], -1)
        t = torch.randint(0, STEPS, (32,))
        noise = torch.randn_like(clean)
        share = kept[t].unsqueeze(-1)
        noisy = share.sqrt() * clean + (1 - share).sqrt() * noise
        loss = nn.functional.mse_loss(model(noisy, t), noise)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        x = torch.randn(4, 2)
        for t in reversed(range(STEPS)):
            found = model(x, torch.full((4,), t))
            x = (x - betas[t] / (1 - kept[t]).sqrt() * found) / (1 - betas[t]).sqrt()
            if t:
                x = x + betas[t].sqrt() * torch.randn_like(x)
    return [*losses, x.norm().item()]


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
