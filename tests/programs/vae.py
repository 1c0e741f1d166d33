"""A variational autoencoder of small pictures of blobs."""

import torch
import torch.nn.functional as F
from torch import nn, optim

SIDE, LATENT = 8, 4


class BlobVAE(nn.Module):
    """Encodes a picture as a diagonal Gaussian and decodes a draw from it."""

    def __init__(self, hidden=32):
        super().__init__()
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, hidden), nn.SiLU())
        self.moments = nn.Linear(hidden, 2 * LATENT)
        self.decoder = nn.Sequential(
            nn.Linear(LATENT, hidden),
            nn.SiLU(),
            nn.Linear(hidden, SIDE * SIDE),
            nn.Unflatten(1, (1, SIDE, SIDE)),
        )

    def forward(self, pictures):
        mean, log_variance = self.moments(self.encoder(pictures)).chunk(2, dim=1)
        noise = torch.randn_like(mean)
        latent = torch.addcmul(mean, noise, torch.exp(log_variance / 2))
        return torch.sigmoid(self.decoder(latent)), mean, log_variance


def negative_elbo(decoded, pictures, mean, log_variance):
    reconstruction = F.binary_cross_entropy(decoded, pictures, reduction="sum")
    divergence = 0.5 * (mean.square() + log_variance.exp() - log_variance - 1).sum()
    return (reconstruction + divergence) / len(pictures)


def make_blobs(size):
    centre = SIDE * torch.rand(size, 2, 1, 1)
    line = torch.arange(SIDE).to(centre.dtype) + 0.5
    rows, columns = torch.meshgrid(line, line, indexing="ij")
    distance = (rows - centre[:, 0]) ** 2 + (columns - centre[:, 1]) ** 2
    return torch.exp(-distance / 4).unsqueeze(1)  # (B, 1, 8, 8)


def train(steps=30):
    torch.manual_seed(3)
    model = BlobVAE()
    optimizer = optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        pictures = make_blobs(32)
        optimizer.zero_grad()
        decoded, mean, log_variance = model(pictures)
        loss = negative_elbo(decoded, pictures, mean, log_variance)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        drawn = torch.sigmoid(model.decoder(torch.randn(16, LATENT)))
    losses.append(drawn.mean().item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
