"""Gradients of gradients, of samples, of updates."""

from __future__ import annotations

from typing import Any

from bench.breadth import spellings
from bench.breadth.registry import Data, Work, workload


@workload()
def maml(torch: Any) -> Work:
    """Two inner updates for each of four tasks, differentiated through."""
    F = torch.nn.functional
    shapes = (40, 1), (40,), (40, 40), (40,), (1, 40), (1,)
    weights = [(0.3 * torch.randn(*shape)).requires_grad_() for shape in shapes]
    optimizer = torch.optim.Adam(weights, lr=1e-3)
    data = Data(torch)

    def net(x: Any, w: Any) -> Any:
        h = F.relu(F.linear(x, w[0], w[1]))
        return F.linear(F.relu(F.linear(h, w[2], w[3])), w[4], w[5])

    def loss(xs: Any, ys: Any) -> Any:
        total = 0.0
        for x, y in zip(xs, ys, strict=True):
            fast = weights
            for _ in range(2):
                inner = F.mse_loss(net(x[:10], fast), y[:10])
                grads = torch.autograd.grad(inner, fast, create_graph=True)
                fast = [w - 0.01 * g for w, g in zip(fast, grads, strict=True)]
            total = total + F.mse_loss(net(x[10:], fast), y[10:])
        return total / len(xs)

    batch = data.uniform(4, 20, 1, low=-3, high=3), data.normal(4, 20, 1)
    return Work(spellings.zero_first(optimizer, loss), (batch,))


@workload()
def gradient_penalty(torch: Any) -> Work:
    """The critic of a Wasserstein GAN."""
    nn = torch.nn
    critic = nn.Sequential(nn.Linear(64, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1))
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.0, 0.9))
    data = Data(torch)

    def loss(real: Any, fake: Any, mix: Any) -> Any:
        between = (mix * real + (1 - mix) * fake).requires_grad_(True)
        scores = critic(between)
        grads = torch.autograd.grad(
            outputs=scores, inputs=between, grad_outputs=torch.ones_like(scores),
            create_graph=True, retain_graph=True,
        )[0]  # fmt: skip
        penalty = ((grads.norm(2, dim=1) - 1) ** 2).mean()
        return critic(fake).mean() - critic(real).mean() + 10 * penalty

    batch = data.normal(64, 64), data.normal(64, 64), data.uniform(64, 1)
    return Work(spellings.zero_first(optimizer, loss), (batch,))


@workload()
def hessian_vector(torch: Any) -> Work:
    nn = torch.nn
    model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 10))
    parameters = list(model.parameters())
    data = Data(torch)
    vectors = [data.normal(*p.shape) for p in parameters]

    def step(x: Any, y: Any) -> Any:
        loss = nn.functional.cross_entropy(model(x), y)
        grads = torch.autograd.grad(loss, parameters, create_graph=True)
        dot = sum((g * v).sum() for g, v in zip(grads, vectors, strict=True))
        return torch.autograd.grad(dot, parameters)

    return Work(step, ((data.normal(64, 32), data.integers(10, 64)),))


@workload()
def per_sample_gradients(torch: Any) -> Work:
    """Differential privacy: each sample's gradient clipped before they are summed."""
    nn, func = torch.nn, torch.func
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    data = Data(torch)

    def loss(parameters: Any, x: Any, y: Any) -> Any:
        out = func.functional_call(model, parameters, (x.unsqueeze(0),))
        return nn.functional.cross_entropy(out, y.unsqueeze(0))

    def step(x: Any, y: Any) -> Any:
        grads = func.vmap(func.grad(loss), in_dims=(None, 0, 0))(parameters, x, y)
        squares = sum(g.flatten(1).pow(2).sum(1) for g in grads.values())
        factor = (1.0 / (squares.sqrt() + 1e-6)).clamp(max=1.0)
        return tuple(torch.einsum("b,b...->...", factor, g) for g in grads.values())

    return Work(step, ((data.normal(64, 32), data.integers(10, 64)),))


@workload()
def jacobian_rows(torch: Any) -> Work:
    nn, func = torch.nn, torch.func
    model = nn.Sequential(nn.Linear(16, 32), nn.Sigmoid(), nn.Linear(32, 8))

    def step(x: Any) -> Any:
        return func.vmap(func.jacrev(model))(x)

    return Work(step, ((Data(torch).normal(32, 16),),))


@workload()
def forward_mode(torch: Any) -> Work:
    """A directional derivative beside the value."""
    nn, func = torch.nn, torch.func
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))
    data = Data(torch)

    def step(x: Any, v: Any) -> Any:
        return func.jvp(model, (x,), (v,))

    return Work(step, ((data.normal(64, 64), data.normal(64, 64)),))


@workload()
def adversarial_pgd(torch: Any) -> Work:
    """Three steps against the input, then one of the model."""
    nn, F = torch.nn, torch.nn.functional
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                          nn.Linear(8 * 169, 10))  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = Data(torch)

    def step(x: Any, y: Any) -> Any:
        delta = torch.zeros_like(x, requires_grad=True)
        for _ in range(3):
            (grad,) = torch.autograd.grad(F.cross_entropy(model(x + delta), y), delta)
            delta = (delta + 0.05 * grad.sign()).clamp(-0.1, 0.1).detach().requires_grad_()
        loss = F.cross_entropy(model(x + delta.detach()), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Work(step, ((data.normal(16, 1, 28, 28), data.integers(10, 16)),))


@workload()
def checkpointed(torch: Any) -> Work:
    """Activations recomputed in backward."""
    nn = torch.nn
    blocks = nn.ModuleList(
        [nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 128)) for _ in range(4)]
    )
    optimizer = torch.optim.Adam(blocks.parameters(), lr=1e-3)

    def loss(x: Any) -> Any:
        for block in blocks:
            x = x + torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
        return x.pow(2).mean()

    return Work(spellings.zero_first(optimizer, loss), ((Data(torch).normal(128, 128),),))
