"""A Wasserstein GAN in the plane whose critic is held to gradients of norm one."""

import math

import torch
import torch.nn as nn


def make_generator(width=16):
    return nn.Sequential(nn.Linear(2, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 2))


def make_critic(width=16):
    return nn.Sequential(
        nn.Linear(2, width), nn.LeakyReLU(0.2), nn.LayerNorm(width), nn.Linear(width, width),
        nn.Softplus(beta=2), nn.Linear(width, 1),
    )  # fmt: skip


def real_points(size, modes=6):
    """A ring of Gaussians."""
    angle = 2 * math.pi * torch.randint(modes, (size,)) / modes
    return torch.stack((angle.cos(), angle.sin()), 1) + 0.05 * torch.randn(size, 2)


def gradient_penalty(critic, real, fake):
    weight = torch.rand(real.size(0), 1)
    between = torch.lerp(real, fake, weight).requires_grad_(True)
    worth = critic(between)
    (gradient,) = torch.autograd.grad(
        outputs=worth, inputs=between, grad_outputs=torch.ones_like(worth), create_graph=True
    )
    return ((gradient.norm(2, dim=1) - 1) ** 2).mean()


def train(steps=10, critic_steps=2, size=24):
    torch.manual_seed(26)
    generator, critic = make_generator(), make_critic()
    for_generator = torch.optim.Adam(generator.parameters(), lr=0.005, betas=(0.0, 0.9))
    for_critic = torch.optim.Adam(critic.parameters(), lr=0.01, betas=(0.0, 0.9))
    losses = []
    for _ in range(steps):
        for p in critic.parameters():
            p.requires_grad = True
        for _ in range(critic_steps):
            real = real_points(size)
            with torch.no_grad():
                fake = generator(torch.randn(size, 2))
            for_critic.zero_grad()
            penalty = gradient_penalty(critic, real, fake)
            distance = critic(fake).mean() - critic(real).mean()
            (distance + 10 * penalty).backward()
            for_critic.step()
        for p in critic.parameters():
            p.requires_grad = False
        for_generator.zero_grad()
        loss = -critic(generator(torch.randn(size, 2))).mean()
        loss.backward()
        for_generator.step()
        losses += [distance.item(), penalty.item(), loss.item()]
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
