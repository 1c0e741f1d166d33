"""A denoising autoencoder: convolutions with a stride down, transposed ones up again."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import ReduceLROnPlateau


class Autoencoder(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.down1 = nn.Conv2d(1, width, 3, stride=2, padding=1)
        self.down2 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.pool = nn.MaxPool2d(2, return_indices=True)
        self.unpool = nn.MaxUnpool2d(2)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 3, padding=1)
        self.up2 = nn.ConvTranspose2d(width, 1, 3, stride=2, padding=1, output_padding=1)
        self.norm = nn.LocalResponseNorm(3)

    def encode(self, x):
        x = F.gelu(self.down1(x))  # (B, 6, 8, 8)
        x = self.norm(F.hardswish(self.down2(x)))
        return self.pool(x)  # (B, 12, 4, 4) and where the maxima stood

    def decode(self, code, indices):
        x = F.leaky_relu(self.up1(self.unpool(code, indices)), 0.1)
        return torch.sigmoid(self.up2(x))

    def forward(self, x):
        return self.decode(*self.encode(x))


def make_letters(size, side=16):
    """Crosses of random place and thickness."""
    pictures = torch.zeros(size, 1, side, side)
    rows, columns = torch.randint(3, side - 3, (2, size)).tolist()
    thick = torch.randint(1, 3, (size,)).tolist()
    for picture, row, column, t in zip(pictures, rows, columns, thick, strict=True):
        picture[:, row : row + t, :] = 1.0
        picture[:, :, column : column + t] = 1.0
    return pictures


def total_variation(x):
    return (x[..., 1:, :] - x[..., :-1, :]).abs().mean() + x.diff(dim=-1).abs().mean()


def train(steps=15):
    torch.manual_seed(16)
    model = Autoencoder()
    optimizer = torch.optim.NAdam(model.parameters(), lr=0.01)
    scheduler = ReduceLROnPlateau(optimizer, factor=0.5, patience=1, threshold=0.05)
    losses = []
    for _ in range(steps):
        clean = make_letters(8)
        noisy = torch.clamp(clean + 0.3 * torch.randn_like(clean), 0, 1)
        decoded = model(noisy)
        loss = F.mse_loss(decoded, clean) + 0.01 * total_variation(decoded)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step(loss.detach())
        losses += [loss.item(), optimizer.param_groups[0]["lr"]]
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
