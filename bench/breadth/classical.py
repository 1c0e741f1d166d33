"""Statistics and numerical methods written with tensors."""

from __future__ import annotations

import math
from typing import Any

from bench.breadth import spellings
from bench.breadth.registry import Data, Work, workload


@workload()
def gaussian_process(torch: Any) -> Work:
    """The evidence of hyper-parameters: Cholesky, a triangular solve, a log-determinant."""
    logs = torch.zeros(3, dtype=torch.float64).requires_grad_()
    optimizer = torch.optim.Adam([logs], lr=0.05)
    data = Data(torch)

    def loss(x: Any, y: Any) -> Any:
        length, scale, noise = logs.exp()
        distance = (x[:, None] - x[None, :]).pow(2)
        kernel = scale * torch.exp(-0.5 * distance / length**2)
        kernel = kernel + noise * torch.eye(len(x), dtype=x.dtype)
        factor = torch.linalg.cholesky(kernel)
        half = torch.linalg.solve_triangular(factor, y[:, None], upper=False)
        return 0.5 * half.pow(2).sum() + factor.diagonal().log().sum()

    batch = data.uniform(128, high=5).double(), data.normal(128).double()
    return Work(spellings.zero_first(optimizer, loss), (batch,))


@workload()
def lbfgs(torch: Any) -> Work:
    weight = torch.zeros(20, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight], lr=0.5, max_iter=4, history_size=5)
    data = Data(torch)
    x, y = data.normal(200, 20), (data.uniform(200) > 0.5).float()

    def step() -> Any:
        def closure() -> Any:
            optimizer.zero_grad()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(x @ weight, y)
            loss = loss + 0.01 * weight.square().sum()
            loss.backward()
            return loss

        return optimizer.step(closure)

    return Work(step)


@workload()
def k_means(torch: Any) -> Work:
    """Distances, assignments, means by one-hot products."""
    data = Data(torch)
    points = data.normal(2000, 16)
    centres = points[:20].clone()

    def step() -> Any:
        nearest = torch.cdist(points, centres).argmin(1)
        members = torch.nn.functional.one_hot(nearest, 20).to(points.dtype)
        counts = members.sum(0).clamp(min=1)
        centres.copy_(members.T @ points / counts[:, None])
        return (points - centres[nearest]).pow(2).sum(1).mean()

    return Work(step)


@workload()
def k_means_scatter(torch: Any) -> Work:
    """The same with sums by index and counts by bincount."""
    data = Data(torch)

    def step(points: Any, centres: Any) -> Any:
        for _ in range(3):
            squares = points.pow(2).sum(1, keepdim=True) - 2 * points @ centres.t()
            nearest = (squares + centres.pow(2).sum(1)).min(1).indices
            counts = torch.bincount(nearest, minlength=20).clamp(min=1)
            sums = torch.zeros_like(centres).index_add_(0, nearest, points)
            centres = sums / counts.unsqueeze(1)
        return centres

    points = data.normal(2000, 16)
    return Work(step, ((points, points[:20].clone()),))


@workload()
def logistic_float64(torch: Any) -> Work:
    """Newton-like fitting in double precision with tensors from NumPy."""
    data = Data(torch)
    x = torch.from_numpy(data.normal(1000, 30).numpy().astype("float64"))
    y = torch.from_numpy((data.uniform(1000).numpy() > 0.5).astype("float64"))
    weight = torch.zeros(30, dtype=torch.float64, requires_grad=True)

    def loss() -> Any:
        p = torch.sigmoid(x @ weight)
        return -(y * torch.log(p + 1e-12) + (1 - y) * torch.log(1 - p + 1e-12)).mean()

    return Work(spellings.by_hand(torch, [weight], loss, 0.1))


@workload()
def ridge_solve(torch: Any) -> Work:
    """Features learned through a linear solve."""
    project = (torch.randn(16, 40) / 4).requires_grad_()
    data = Data(torch)

    def loss(x: Any, y: Any) -> Any:
        h = torch.tanh(x @ project)
        fit = torch.linalg.solve(h.T @ h + 0.1 * torch.eye(40), h.T @ y)
        return (h @ fit - y).pow(2).mean()

    batch = data.normal(200, 16), data.normal(200, 1)
    return Work(spellings.by_hand(torch, [project], loss, 0.05), (batch,))


@workload()
def power_iteration(torch: Any) -> Work:
    """Matrix-vector products one after the other."""
    data = Data(torch)
    half = data.normal(400, 400)
    matrix = half @ half.T / 400

    def step(v: Any) -> Any:
        for _ in range(10):
            v = matrix @ v
            v = v / torch.linalg.vector_norm(v)
        return torch.dot(v, matrix.mv(v))

    return Work(step, ((data.normal(400),),))


@workload()
def sinkhorn(torch: Any) -> Work:
    """Entropic transport in logarithms."""
    points = torch.randn(64, 2).requires_grad_()
    data = Data(torch)

    def loss(target: Any) -> Any:
        cost = (points[:, None] - target[None]).pow(2).sum(-1)
        f, g = torch.zeros(64), torch.zeros(64)
        for _ in range(10):
            f = -0.1 * torch.logsumexp((g[None, :] - cost) / 0.1, dim=1)
            g = -0.1 * torch.logsumexp((f[:, None] - cost) / 0.1, dim=0)
        plan = torch.exp((f[:, None] + g[None, :] - cost) / 0.1)
        return (plan * cost).sum()

    return Work(spellings.by_hand(torch, [points], loss), ((data.normal(64, 2),),))


@workload()
def quantile_regression(torch: Any) -> Work:
    """The pinball loss and a trimmed mean: sort, quantiles, medians."""
    nn = torch.nn
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    levels = torch.tensor([0.1, 0.5, 0.9])
    data = Data(torch)

    def loss(x: Any, y: Any) -> Any:
        error = y[:, None] - model(x)
        pinball = torch.maximum(levels * error, (levels - 1) * error)
        kept = pinball.mean(1).sort().values[: int(0.9 * len(x))]
        return kept.mean() + 0.01 * error[:, 1].abs().median()

    batch = data.normal(512, 8), data.normal(512)
    return Work(spellings.zero_first(optimizer, loss), (batch,))


@workload()
def monte_carlo(torch: Any) -> Work:
    """An Asian option by simulated paths, with its sensitivity."""
    start = torch.tensor(100.0, requires_grad=True)
    volatility = torch.tensor(0.2, requires_grad=True)

    def step() -> Any:
        noise = torch.randn(2000, 50)
        increments = (0.05 - 0.5 * volatility**2) / 50 + volatility * noise / math.sqrt(50)
        paths = start * torch.exp(torch.cumsum(increments, dim=1))
        price = torch.exp(torch.tensor(-0.05)) * torch.relu(paths.mean(1) - 100).mean()
        return (price.detach(), *torch.autograd.grad(price, (start, volatility)))

    return Work(step)


@workload()
def kalman_filter(torch: Any) -> Work:
    """Small matrices, one after the other, differentiated."""
    noise = torch.tensor([0.1, 0.2, 0.1, 0.2]).requires_grad_()
    data = Data(torch)

    def loss(seen: Any) -> Any:
        move = torch.eye(4) + 0.1 * torch.diag(torch.ones(2), 2)
        look = torch.eye(4)[:2]
        mean, spread, total = torch.zeros(4), torch.eye(4), 0.0
        for z in seen:
            mean, spread = move @ mean, move @ spread @ move.T + torch.diag(noise**2)
            gap = z - look @ mean
            s = look @ spread @ look.T + 0.1 * torch.eye(2)
            gain = spread @ look.T @ torch.linalg.inv(s)
            mean, spread = mean + gain @ gap, spread - gain @ look @ spread
            total = total + gap @ torch.linalg.solve(s, gap) + torch.logdet(s)
        return total / len(seen)

    return Work(spellings.by_hand(torch, [noise], loss, 1e-3), ((data.normal(15, 2),),))
