"""A generative adversarial network of convolutions, with an optimizer for either side."""

import torch
import torch.nn as nn
import torch.optim as optim

NOISE, SIZE = 8, 16


def make_generator(width=16):
    return nn.Sequential(
        nn.ConvTranspose2d(NOISE, width, kernel_size=4, bias=False),  # (B, 16, 4, 4)
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        nn.ConvTranspose2d(width, 1, kernel_size=4, stride=2, padding=1),  # (B, 1, 8, 8)
        nn.Tanh(),
    )


def make_critic(width=8):
    return nn.Sequential(
        nn.Conv2d(1, width, kernel_size=4, stride=2, padding=1),  # (B, 8, 4, 4)
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(width, 2 * width, kernel_size=3, padding=1, bias=False),
        nn.InstanceNorm2d(2 * width, affine=True),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(2 * width, 1, kernel_size=4),
        nn.Sigmoid(),
        nn.Flatten(0),  # (B,)
    )


def initialise(module):
    if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(module.weight, mean=0.0, std=0.1)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.weight, mean=1.0, std=0.02)


def real_images():
    """Checkerboards of random sign and contrast."""
    cells = (torch.arange(8)[:, None] // 2 + torch.arange(8)[None, :] // 2) % 2
    sign = torch.where(torch.rand(SIZE, 1, 1, 1) < 0.5, 1.0, -1.0)
    contrast = torch.empty(SIZE, 1, 1, 1).uniform_(0.5, 1.0)
    return (2 * cells - 1) * sign * contrast


class Game:
    """Both players, their optimizers, and a step of each."""

    def __init__(self):
        self.generator = make_generator().apply(initialise)
        self.critic = make_critic().apply(initialise)
        self.for_generator = optim.Adam(self.generator.parameters(), lr=0.01, betas=(0.5, 0.999))
        self.for_critic = optim.Adam(self.critic.parameters(), lr=0.01, betas=(0.5, 0.999))
        self.criterion = nn.BCELoss()
        self.labels = torch.empty(SIZE)

    def train_critic(self, fake):
        self.for_critic.zero_grad()
        on_real = self.criterion(self.critic(real_images()), self.labels.fill_(0.9))
        on_real.backward()
        on_fake = self.criterion(self.critic(fake.detach()), self.labels.fill_(0.0))
        on_fake.backward()
        self.for_critic.step()
        return (on_real + on_fake).item()

    def train_generator(self, fake):
        self.for_generator.zero_grad()
        loss = self.criterion(self.critic(fake), self.labels.fill_(1.0))
        loss.backward()
        self.for_generator.step()
        return loss.item()


def train(steps=10):
    torch.manual_seed(4)
    game = Game()
    fixed_noise = torch.randn(4, NOISE, 1, 1)
    losses = []
    for _ in range(steps):
        fake = game.generator(torch.randn(SIZE, NOISE, 1, 1))
        losses += [game.train_critic(fake), game.train_generator(fake)]
    game.generator.eval()
    losses.append(game.generator(fixed_noise).detach().abs().mean().item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
