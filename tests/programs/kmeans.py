"""k-means with k-means++ seeds, then soft clusters refined by gradients."""

import torch


def first_centers(x, count):
    centers = x[torch.randint(len(x), (1,))]
    while len(centers) < count:
        nearest = torch.cdist(x, centers).min(1).values.pow(2)
        centers = torch.cat([centers, x[torch.multinomial(nearest, 1)]])
    return centers


def train(rounds=5, steps=5):
    torch.manual_seed(14)
    means = torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
    x = (means.unsqueeze(1) + 0.5 * torch.randn(3, 20, 2)).reshape(-1, 2)
    centers, losses = first_centers(x, 3), []
    for _ in range(rounds):
        distance, owner = torch.cdist(x, centers).min(1)
        losses.append(distance.pow(2).mean().item())
        sums = torch.zeros_like(centers).index_add_(0, owner, x)
        counts = torch.bincount(owner, minlength=3).clamp(min=1).unsqueeze(-1)
        centers = sums / counts
    centers.requires_grad_()
    for _ in range(steps):
        loss = -torch.logsumexp(-torch.cdist(x, centers).pow(2), 1).mean()
        (slope,) = torch.autograd.grad(loss, centers)
        with torch.no_grad():
            centers -= 0.1 * slope
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
