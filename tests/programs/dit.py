"""A diffusion transformer (adaLN-zero) learns to predict the noise in rings of points."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

STEPS = 50


def modulate(x, shift, scale):
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


def time_features(t, width, longest=10_000):
    half = width // 2
    rates = torch.exp(-math.log(longest) * torch.arange(half) / half)
    angles = t[:, None] * rates[None]
    return torch.cat([torch.cos(angles), torch.sin(angles)], dim=-1)


class DiTBlock(nn.Module):
    """Attention and an MLP whose norms and gates are set by the condition; starts as identity."""

    def __init__(self, width, heads=2):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.condition = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))
        nn.init.zeros_(self.condition[-1].weight)
        nn.init.zeros_(self.condition[-1].bias)

    def attend(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).reshape(B, T, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        x = F.scaled_dot_product_attention(q, k, v)  # (B, nh, T, hs)
        return self.out(x.transpose(1, 2).reshape(B, T, C))

    def forward(self, x, c):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.condition(c).chunk(6, dim=1)
        x = x + gate1.unsqueeze(1) * self.attend(modulate(self.norm1(x), shift1, scale1))
        return x + gate2.unsqueeze(1) * self.mlp(modulate(self.norm2(x), shift2, scale2))


class DiT(nn.Module):
    def __init__(self, width=16, depth=2, classes=3):
        super().__init__()
        self.width = width
        self.embed = nn.Linear(2, width)
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.label = nn.Embedding(classes + 1, width)
        self.blocks = nn.ModuleList([DiTBlock(width) for _ in range(depth)])
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.head = nn.Linear(width, 2)
        nn.init.zeros_(self.head.bias)

    def forward(self, x, t, label):
        c = self.time(time_features(t, self.width)) + self.label(label)
        x = self.embed(x)
        for block in self.blocks:
            x = block(x, c)
        return self.head(self.norm(x))


def make_rings(size, points=8):
    """Points on rings whose radius is given by the class: (B, points, 2)."""
    label = torch.randint(0, 3, (size,))
    angle = 2 * math.pi * torch.rand(size, points)
    radius = (label + 1)[:, None] / 2
    return torch.stack((radius * angle.cos(), radius * angle.sin()), dim=-1), label


@torch.no_grad()
def update_average(average, model, decay=0.9):
    for kept, p in zip(average.parameters(), model.parameters(), strict=True):
        kept.lerp_(p, 1 - decay)


@torch.no_grad()
def draw(model, alpha, alpha_bar, size=4):
    """Denoises step by step from pure noise."""
    x = torch.randn(size, 8, 2)
    label = torch.zeros(size, dtype=torch.long)
    for t in range(STEPS - 1, -1, -10):
        noise = model(x, torch.full((size,), t), label)
        x = (x - (1 - alpha[t]) / (1 - alpha_bar[t]).sqrt() * noise) * alpha[t].rsqrt()
        x += (1 - alpha[t]).sqrt() * torch.randn_like(x) if t > 0 else 0
    return x


def train(steps=15):
    torch.manual_seed(9)
    alpha = 1 - torch.linspace(1e-4, 0.05, STEPS)
    alpha_bar = torch.cumprod(alpha, dim=0)
    model = DiT()
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0)
    losses = []
    for _ in range(steps):
        x, label = make_rings(16)
        label = label.masked_fill(torch.rand(16) < 0.1, 3)  # the class for "none"
        t = torch.randint(0, STEPS, (16,))
        noise = torch.randn_like(x)
        kept = alpha_bar[t].view(-1, 1, 1)
        noisy = kept.sqrt() * x + (1 - kept).sqrt() * noise
        loss = F.mse_loss(model(noisy, t, label), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        update_average(average, model)
        losses.append(loss.item())
    losses.append(draw(average, alpha, alpha_bar).norm(dim=-1).mean().item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
