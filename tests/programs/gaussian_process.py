"""Gaussian process regression: hyper-parameters by marginal likelihood, then a prediction."""

import math

import torch


def kernel(a, b, log_scale, log_length):
    distance = torch.cdist(a, b).pow(2)
    return log_scale.exp() * torch.exp(-0.5 * distance / log_length.exp().pow(2))


def train(steps=12):
    torch.manual_seed(7)
    x = torch.linspace(0, 3, 20).unsqueeze(-1)
    y = torch.sin(2 * x).squeeze(-1) + 0.1 * torch.randn(20)
    scale, length, noise = (torch.tensor(v, requires_grad=True) for v in (0.0, 0.3, -2.0))
    optimizer = torch.optim.Adam([scale, length, noise], lr=0.1)
    losses = []
    for _ in range(steps):
        matrix = kernel(x, x, scale, length) + noise.exp() * torch.eye(20)
        lower = torch.linalg.cholesky(matrix)
        weights = torch.cholesky_solve(y.unsqueeze(-1), lower)
        loss = 0.5 * (y @ weights).squeeze() + lower.diagonal().log().sum()
        loss = loss + 10 * math.log(2 * math.pi)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        new = torch.tensor([[0.5], [4.0]])
        across = kernel(new, x, scale, length)
        mean = (across @ weights).squeeze(-1)
        half = torch.linalg.solve_triangular(lower, across.T, upper=False)
        variance = scale.exp() - half.pow(2).sum(0)
    return [*losses, *mean.tolist(), *variance.tolist()]


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
