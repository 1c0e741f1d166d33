"""Functions of coordinates and differential equations: smooth, small, differentiated often."""

from __future__ import annotations

import math
from typing import Any

from bench.breadth import spellings
from bench.breadth.registry import Data, Work, workload


@workload()
def nerf(torch: Any) -> Work:
    """Sines of positions, densities along rays, transmittance by cumprod."""
    nn, F = torch.nn, torch.nn.functional
    waves = 2.0 ** torch.arange(6) * math.pi
    model = nn.Sequential(
        nn.Linear(3 + 36, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    data = Data(torch)

    def encode(x: Any) -> Any:
        angles = (x[..., None] * waves).flatten(-2)
        return torch.cat([x, angles.sin(), angles.cos()], -1)

    def loss(points: Any, colours: Any) -> Any:
        raw = model(encode(points))  # (rays, samples, 4)
        alpha = 1 - torch.exp(-F.softplus(raw[..., 3]) * 0.1)
        clear = torch.cumprod(1 - alpha + 1e-10, -1)
        clear = torch.cat([torch.ones_like(clear[:, :1]), clear[:, :-1]], -1)
        pixel = ((alpha * clear)[..., None] * torch.sigmoid(raw[..., :3])).sum(1)
        return F.mse_loss(pixel, colours)

    batch = data.uniform(64, 32, 3, low=-1), data.uniform(64, 3)
    return Work(spellings.zero_first(optimizer, loss), (batch,))


@workload()
def siren(torch: Any) -> Work:
    """Sine activations; the gradient of the picture is fitted."""
    nn = torch.nn

    class Sine(nn.Module):
        def __init__(self, inner: int, outer: int) -> None:
            super().__init__()
            self.linear = nn.Linear(inner, outer)

        def forward(self, x: Any) -> Any:
            return torch.sin(10 * self.linear(x))

    model = nn.Sequential(Sine(2, 64), Sine(64, 64), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    data = Data(torch)

    def loss(x: Any, slopes: Any) -> Any:
        x = x.clone().requires_grad_(True)
        (found,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        return (found - slopes).pow(2).mean()

    batch = data.uniform(512, 2, low=-1), data.normal(512, 2)
    return Work(spellings.zero_first(optimizer, loss), (batch,))


@workload()
def pinn(torch: Any) -> Work:
    """Burgers' equation: first and second derivatives by coordinates."""
    nn = torch.nn
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(),
                          nn.Linear(32, 1))  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = Data(torch)

    def residual(x: Any, t: Any) -> Any:
        x, t = x.detach().requires_grad_(), t.detach().requires_grad_()
        u = model(torch.stack([x, t], 1)).squeeze(1)
        one = torch.ones_like(u)
        u_t, u_x = torch.autograd.grad(u, (t, x), one, create_graph=True)
        (u_xx,) = torch.autograd.grad(u_x, x, one, create_graph=True)
        return u_t + u * u_x - 0.01 / math.pi * u_xx

    def loss(x: Any, t: Any) -> Any:
        edge = model(torch.stack([x, torch.zeros_like(x)], 1)).squeeze(1)
        return residual(x, t).pow(2).mean() + (edge + torch.sin(math.pi * x)).pow(2).mean()

    batch = data.uniform(256, low=-1), data.uniform(256)
    return Work(spellings.zero_first(optimizer, loss), (batch,))


@workload()
def neural_ode(torch: Any) -> Work:
    """Runge-Kutta through a small network, differentiated through all steps."""
    nn = torch.nn
    model = nn.Sequential(nn.Linear(2, 50), nn.Tanh(), nn.Linear(50, 2))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    data = Data(torch)

    def loss(y: Any, end: Any) -> Any:
        h = 0.1
        for _ in range(10):
            k1 = model(y**3)
            k2 = model((y + h / 2 * k1) ** 3)
            k3 = model((y + h / 2 * k2) ** 3)
            k4 = model((y + h * k3) ** 3)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return (y - end).abs().mean()

    return Work(spellings.zero_first(optimizer, loss), ((data.normal(20, 2), data.normal(20, 2)),))


@workload()
def real_nvp(torch: Any) -> Work:
    """Affine couplings with masks and a log-determinant."""
    nn = torch.nn
    size, layers = 8, 4
    nets = nn.ModuleList(
        [nn.Sequential(nn.Linear(size, 64), nn.LeakyReLU(), nn.Linear(64, 2 * size))
         for _ in range(layers)]
    )  # fmt: skip
    masks = [(torch.arange(size) % 2 == i % 2).float() for i in range(layers)]
    optimizer = torch.optim.Adam(nets.parameters(), lr=1e-3)
    prior = torch.distributions.Normal(torch.zeros(size), torch.ones(size))

    def loss(x: Any) -> Any:
        total = x.new_zeros(x.shape[0])
        for net, mask in zip(nets, masks, strict=True):
            scale, shift = net(x * mask).chunk(2, 1)
            scale = torch.tanh(scale) * (1 - mask)
            x = x * scale.exp() + shift * (1 - mask)
            total = total + scale.sum(1)
        return -(prior.log_prob(x).sum(1) + total).mean()

    return Work(spellings.zero_first(optimizer, loss), ((Data(torch).normal(128, size),),))


@workload()
def score_matching(torch: Any) -> Work:
    """Sliced score matching: a vector-Jacobian product inside of the loss."""
    nn = torch.nn
    model = nn.Sequential(nn.Linear(16, 64), nn.Softplus(), nn.Linear(64, 16))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = Data(torch)

    def loss(x: Any, v: Any) -> Any:
        x = x.detach().requires_grad_(True)
        score = model(x)
        (product,) = torch.autograd.grad((score * v).sum(), x, create_graph=True)
        return ((product * v).sum(-1) + 0.5 * score.pow(2).sum(-1)).mean()

    batch = data.normal(128, 16), data.normal(128, 16)
    return Work(spellings.zero_first(optimizer, loss), (batch,))


@workload()
def spectral_loss(torch: Any) -> Work:
    """A convolution in the frequency domain and a loss on magnitudes."""
    weight = (torch.randn(129, 2) * 0.1).requires_grad_()
    data = Data(torch)

    def loss(x: Any, y: Any) -> Any:
        out = torch.fft.irfft(torch.fft.rfft(x) * torch.view_as_complex(weight), n=256)
        return (torch.fft.rfft(out).abs() - torch.fft.rfft(y).abs()).pow(2).mean()

    batch = data.normal(16, 256), data.normal(16, 256)
    return Work(spellings.by_hand(torch, [weight], loss, 1e-4), (batch,))
