"""A VAE with a warmed-up KL term and categorical latents by Gumbel-softmax."""

import torch
from torch import nn
from torch.distributions import Independent, Normal, kl_divergence
from torch.nn import functional as F


class Autoencoder(nn.Module):
    def __init__(self, seen=8, hidden=16, latent=3, kinds=4):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(seen, hidden), nn.CELU())
        self.place, self.kind = nn.Linear(hidden, 2 * latent), nn.Linear(hidden, kinds)
        self.decoder = nn.Sequential(
            nn.Linear(latent + kinds, hidden), nn.CELU(), nn.Linear(hidden, seen)
        )

    def forward(self, x):
        hidden = self.encoder(x)
        mean, raw = self.place(hidden).chunk(2, -1)
        posterior = Independent(Normal(mean, F.softplus(raw) + 1e-3), 1)
        logits = self.kind(hidden)
        chosen = F.gumbel_softmax(logits, tau=0.7, hard=True)
        made = self.decoder(torch.cat([posterior.rsample(), chosen], -1))
        return made, posterior, logits


def train(steps=8):
    torch.manual_seed(29)
    model = Autoencoder()
    prior = Independent(Normal(torch.zeros(3), torch.ones(3)), 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, amsgrad=True)
    losses = []
    for step in range(steps):
        x = torch.randn(16, 2) @ torch.randn(2, 8).sign()
        made, posterior, logits = model(x)
        spread = kl_divergence(posterior, prior).mean()
        shares = logits.softmax(-1)
        kinds = (shares * (shares.clamp(min=1e-9) * shares.shape[-1]).log()).sum(-1).mean()
        loss = F.smooth_l1_loss(made, x) + min(1.0, step / 4) * 0.1 * (spread + kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
