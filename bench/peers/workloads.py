"""The workloads in PyTorch's style, for PyTorch and evergrad alike.

``WORKLOADS[name](torch)`` builds a :class:`Task` with the given namespace. Parameters come from the
namespace's own generator, seeded alike; data come from NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from bench.peers.tasks import SEED, Array, Optimizer, Task, numbers

VOCABULARY = 65
GROUPS = 8


def build(name: str, torch: Any) -> Task:
    """The workload of this name in the given namespace; ``gpt:`` and sizes, as in
    ``gpt:layers=2,heads=2,width=64,context=64,batch=16``, make a GPT of these, and ``mlp:width=64``
    makes a small perceptron."""
    torch.manual_seed(SEED)
    family, _, sizes = name.partition(":")
    if not sizes:
        return WORKLOADS[name](torch)
    pairs = (part.split("=") for part in sizes.split(","))
    families = {"gpt": gpt, "mlp": small_mlp}
    return families[family](torch, **{key: int(value) for key, value in pairs})


def _normal(*shape: int, source: np.random.Generator) -> Array:
    return source.standard_normal(shape, np.float32)


def _trained(module: Any, loss: Callable[..., Any], data: Any, optimizer: Optimizer) -> Task:
    return Task(loss, dict(module.named_parameters()), data, optimizer)


def _differentiated(
    torch: Any, function: Callable[..., Any], arrays: dict[str, Array], cotangent: Array | None,
    *data: Array,
) -> Task:  # fmt: skip
    """A task without an optimizer: ``function(*data)`` reads the parameters it is made with."""
    parameters = {name: torch.tensor(value).requires_grad_() for name, value in arrays.items()}
    return Task(
        partial(function, *parameters.values()), parameters,
        tuple(torch.tensor(d) for d in data),
        cotangent=None if cotangent is None else torch.tensor(cotangent),
    )  # fmt: skip


# -- perceptrons and convolutions ----------------------------------------------------------------


def lenet(torch: Any, batch: int) -> Task:
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip
    source = numbers()
    images = _normal(batch, 1, 28, 28, source=source)
    optimizer = Optimizer("SGD", {"lr": 0.01, "momentum": 0.9})
    return _classified(torch, model, images, source.integers(0, 10, batch), optimizer)


def mlp10m(torch: Any) -> Task:
    nn = torch.nn
    model = nn.Sequential(
        nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(),
        nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10),
    )  # fmt: skip
    source = numbers()
    images = _normal(128, 784, source=source)
    optimizer = Optimizer("Adam", {"lr": 1e-3})
    return _classified(torch, model, images, source.integers(0, 10, 128), optimizer)


def _classified(torch: Any, model: Any, inputs: Array, labels: Array, optimizer: Optimizer) -> Task:
    def loss(x: Any, y: Any) -> Any:
        return torch.nn.functional.cross_entropy(model(x), y)

    return _trained(model, loss, (torch.tensor(inputs), torch.tensor(labels)), optimizer)


def small_mlp(torch: Any, width: int) -> Task:
    nn = torch.nn
    model = nn.Sequential(
        nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
    )
    source = numbers()
    points = _normal(32, 2, source=source)
    targets = np.sin(points.sum(1, keepdims=True))
    return _regressed(torch, model, points, targets, Optimizer("SGD", {"lr": 0.05}))


def resblock(torch: Any) -> Task:
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.conv = nn.Conv2d(channels, channels, 3, padding=1)
            self.norm = nn.GroupNorm(GROUPS, channels)

        def forward(self, x: Any) -> Any:
            return x + nn.functional.silu(self.norm(self.conv(x)))

    model = nn.Sequential(*[Block(64) for _ in range(3)])
    source = numbers()
    images, targets = (_normal(8, 64, 56, 56, source=source) for _ in range(2))
    return _regressed(torch, model, images, targets, Optimizer("SGD", {"lr": 0.05}))


def _regressed(torch: Any, model: Any, inputs: Array, targets: Array, optimizer: Optimizer) -> Task:
    def loss(x: Any, y: Any) -> Any:
        return torch.nn.functional.mse_loss(model(x), y)

    return _trained(model, loss, (torch.tensor(inputs), torch.tensor(targets)), optimizer)


# -- sequences -----------------------------------------------------------------------------------


def _attention(torch: Any, x: Any, qkv: Any, heads: int, causal: bool) -> Any:
    B, T, C = x.shape
    q, k, v = qkv(x).view(B, T, 3, heads, C // heads).permute(2, 0, 3, 1, 4)  # (B, nh, T, hs)
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return y.transpose(1, 2).reshape(B, T, C)


def _transformer_block(torch: Any, width: int, heads: int) -> Any:
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1 = nn.LayerNorm(width)
            self.qkv = nn.Linear(width, 3 * width)
            self.out = nn.Linear(width, width)
            self.norm2 = nn.LayerNorm(width)
            self.up = nn.Linear(width, 4 * width)
            self.down = nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            x = x + self.out(_attention(torch, self.norm1(x), self.qkv, heads, causal=True))
            return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))

    return Block()


def gpt(torch: Any, layers: int, heads: int, width: int, context: int, batch: int) -> Task:
    nn = torch.nn

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(VOCABULARY, width)
            self.places = nn.Embedding(context, width)
            self.blocks = nn.ModuleList(
                [_transformer_block(torch, width, heads) for _ in range(layers)]
            )
            self.norm = nn.LayerNorm(width)
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    nn.init.normal_(parameter, std=0.02)

        def forward(self, tokens: Any) -> Any:
            x = self.tokens(tokens) + self.places.weight
            for block in self.blocks:
                x = block(x)
            return nn.functional.linear(self.norm(x), self.tokens.weight)

    model = GPT()

    def loss(tokens: Any, targets: Any) -> Any:
        logits = model(tokens)
        return nn.functional.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))

    text = numbers().integers(0, VOCABULARY, (batch, context + 1))
    data = torch.tensor(text[:, :-1].copy()), torch.tensor(text[:, 1:].copy())
    return _trained(model, loss, data, Optimizer("AdamW", {"lr": 1e-3, "weight_decay": 0.1}))


def dit(torch: Any, layers: int = 4, heads: int = 8, width: int = 256) -> Task:
    nn, F = torch.nn, torch.nn.functional
    patch, frequencies = 16, 128

    def modulated(x: Any, shift: Any, scale: Any) -> Any:
        return F.layer_norm(x, (width,), eps=1e-6) * (1 + scale[:, None]) + shift[:, None]

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(width, 3 * width)
            self.out = nn.Linear(width, width)
            self.up = nn.Linear(width, 4 * width)
            self.down = nn.Linear(4 * width, width)
            self.modulation = nn.Linear(width, 6 * width)

        def forward(self, x: Any, c: Any) -> Any:
            shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(F.silu(c)).chunk(6, 1)
            h = _attention(torch, modulated(x, shift1, scale1), self.qkv, heads, causal=False)
            x = x + gate1[:, None] * self.out(h)
            h = F.gelu(self.up(modulated(x, shift2, scale2)), approximate="tanh")
            return x + gate2[:, None] * self.down(h)

    class DiT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(patch, width)
            self.places = nn.Parameter(0.02 * torch.randn(256, width))
            self.time1 = nn.Linear(2 * frequencies, width)
            self.time2 = nn.Linear(width, width)
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.modulation = nn.Linear(width, 2 * width)
            self.final = nn.Linear(width, patch)
            for layer in (*(b.modulation for b in self.blocks), self.modulation, self.final):
                nn.init.zeros_(layer.weight)
                nn.init.zeros_(layer.bias)

        def forward(self, x: Any, waves: Any) -> Any:
            c = self.time2(F.silu(self.time1(waves)))
            x = self.embed(x) + self.places
            for block in self.blocks:
                x = block(x, c)
            shift, scale = self.modulation(F.silu(c)).chunk(2, 1)
            return self.final(modulated(x, shift, scale))

    source = numbers()
    noisy, noise = (_normal(4, 256, patch, source=source) for _ in range(2))
    angles = source.uniform(0, 1000, (4, 1)) * 10000.0 ** (-np.arange(frequencies) / frequencies)
    waves = np.concatenate([np.cos(angles), np.sin(angles)], 1).astype(np.float32)
    model = DiT()

    def loss(x: Any, waves: Any, noise: Any) -> Any:
        return F.mse_loss(model(x, waves), noise)

    data = tuple(torch.tensor(a) for a in (noisy, waves, noise))
    return _trained(model, loss, data, Optimizer("AdamW", {"lr": 1e-3, "weight_decay": 0.0}))


def lstm(torch: Any) -> Task:
    nn = torch.nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(128, 128, batch_first=True)
            self.head = nn.Linear(128, VOCABULARY)

        def forward(self, x: Any) -> Any:
            return self.head(self.lstm(x)[0])

    model = Model()

    def loss(x: Any, targets: Any) -> Any:
        return nn.functional.cross_entropy(model(x).view(-1, VOCABULARY), targets.view(-1))

    source = numbers()
    x = _normal(32, 64, 128, source=source)
    data = torch.tensor(x), torch.tensor(source.integers(0, VOCABULARY, (32, 64)))
    return _trained(model, loss, data, Optimizer("Adam", {"lr": 1e-3}))


# -- ops and parts -------------------------------------------------------------------------------


def chain(torch: Any) -> Task:
    def function(a: Any, b: Any, c: Any) -> Any:
        return (torch.tanh(a * b + c) * torch.sigmoid(a) - torch.exp(-b * b)).sum()

    source = numbers()
    arrays = {name: _normal(4 << 20, source=source) for name in "abc"}
    return _differentiated(torch, function, arrays, None)


def smallop(torch: Any) -> Task:
    def function(x: Any) -> Any:
        y = x
        for _ in range(500):
            y = y * x + x
        return y.sum()

    arrays = {"x": np.array([0.5, 0.9, 1.0, 1.01], np.float32)}
    return _differentiated(torch, function, arrays, None)


def part_xent(torch: Any) -> Task:
    def function(x: Any, y: Any) -> Any:
        return torch.nn.functional.cross_entropy(x, y)

    source = numbers()
    arrays = {"x": _normal(4096, 8192, source=source)}
    return _differentiated(torch, function, arrays, None, source.integers(0, 8192, 4096))


def part_norm(torch: Any) -> Task:
    def function(x: Any, weight: Any, bias: Any) -> Any:
        return torch.nn.functional.layer_norm(x, (1024,), weight, bias)

    source = numbers()
    arrays = {
        "x": _normal(8192, 1024, source=source),
        "weight": _normal(1024, source=source),
        "bias": _normal(1024, source=source),
    }
    return _differentiated(torch, function, arrays, _normal(8192, 1024, source=source))


def part_matmul(torch: Any) -> Task:
    source = numbers()
    arrays = {name: _normal(1024, 1024, source=source) for name in "ab"}
    cotangent = _normal(1024, 1024, source=source)
    return _differentiated(torch, torch.matmul, arrays, cotangent)


def part_attention(torch: Any) -> Task:
    function = partial(torch.nn.functional.scaled_dot_product_attention, is_causal=True)
    source = numbers()
    arrays = {name: _normal(8, 8, 512, 64, source=source) for name in "qkv"}
    return _differentiated(torch, function, arrays, _normal(8, 8, 512, 64, source=source))


WORKLOADS: dict[str, Callable[[Any], Task]] = {
    "lenet64": partial(lenet, batch=64),
    "lenet1": partial(lenet, batch=1),
    "mlp10m": mlp10m,
    "tiny_mlp": partial(small_mlp, width=16),
    "gpt_tiny": partial(gpt, layers=2, heads=2, width=64, context=64, batch=16),
    "gpt_small": partial(gpt, layers=6, heads=6, width=192, context=128, batch=16),
    "gpt_med": partial(gpt, layers=6, heads=6, width=384, context=256, batch=8),
    "dit": dit,
    "resblock": resblock,
    "lstm": lstm,
    "chain": chain,
    "smallop": smallop,
    "part_xent": part_xent,
    "part_norm": part_norm,
    "part_matmul": part_matmul,
    "part_attention": part_attention,
}
# A name for several at once.
SEVERAL = {"parts": tuple(name for name in WORKLOADS if name.startswith("part_"))}
