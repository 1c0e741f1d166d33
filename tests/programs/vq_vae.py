"""Vector quantization: the nearest code, a commitment loss and codes that follow by averages."""

import torch
from torch import nn
from torch.nn import functional as F


class Quantizer(nn.Module):
    def __init__(self, codes=8, width=4, decay=0.8):
        super().__init__()
        self.decay = decay
        self.register_buffer("codes", torch.randn(codes, width))
        self.register_buffer("counts", torch.ones(codes))
        self.register_buffer("sums", self.codes.clone())

    def forward(self, x):
        nearest = torch.cdist(x, self.codes).argmin(-1)
        found = self.codes[nearest]
        if self.training:
            with torch.no_grad():
                hit = F.one_hot(nearest, len(self.codes)).to(x.dtype)
                self.counts.mul_(self.decay).add_(hit.sum(0), alpha=1 - self.decay)
                self.sums.mul_(self.decay).add_(hit.T @ x, alpha=1 - self.decay)
                self.codes.copy_(self.sums / self.counts.clamp(min=1e-3).unsqueeze(-1))
        commitment = F.mse_loss(x, found.detach())
        return x + (found - x).detach(), commitment, nearest


def train(steps=8):
    torch.manual_seed(30)
    encoder, decoder, quantizer = nn.Linear(6, 4), nn.Linear(4, 6), Quantizer()
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-2)
    losses = []
    for _ in range(steps):
        x = torch.randn(24, 6)
        codes, commitment, nearest = quantizer(encoder(x))
        loss = F.mse_loss(decoder(codes), x) + 0.25 * commitment
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    used = torch.unique(nearest, return_counts=True)[1]
    return losses + [float(len(used)), float(used.max())]


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
