"""Steps whose batch size or length is another one at every call."""

from __future__ import annotations

from typing import Any

from bench.breadth import spellings
from bench.breadth.registry import Data, Work, workload
from bench.breadth.transformers import llama_model

_SIZES = (17, 32, 25, 9, 30, 12, 21, 28, 5, 19, 31, 14, 23, 8, 27, 11)


@workload()
def mlp_any_batch(torch: Any) -> Work:
    nn = torch.nn
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = Data(torch)
    step = spellings.zero_first(optimizer, lambda x, y: nn.functional.cross_entropy(model(x), y))
    return Work(step, tuple((data.normal(n, 64), data.integers(10, n)) for n in _SIZES))


@workload()
def cnn_any_batch(torch: Any) -> Work:
    nn = torch.nn
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                          nn.Conv2d(16, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Linear(16, 10))  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = Data(torch)
    step = spellings.zero_first(optimizer, lambda x, y: nn.functional.cross_entropy(model(x), y))
    return Work(step, tuple((data.normal(n, 3, 16, 16), data.integers(10, n)) for n in _SIZES))


@workload()
def gpt_any_length(torch: Any) -> Work:
    model = llama_model(torch, 96, 64, 4, 2, 2, 64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def loss(tokens: Any) -> Any:
        scores = model(tokens[:, :-1])
        return torch.nn.functional.cross_entropy(scores.reshape(-1, 96), tokens[:, 1:].reshape(-1))

    data = Data(torch)
    step = spellings.zero_first(optimizer, loss)
    return Work(step, tuple((data.integers(96, 4, n + 1),) for n in _SIZES))


@workload()
def gru_any_length(torch: Any) -> Work:
    nn = torch.nn
    layer, head = nn.GRU(16, 32, batch_first=True), nn.Linear(32, 1)
    optimizer = torch.optim.Adam([*layer.parameters(), *head.parameters()], lr=1e-3)
    data = Data(torch)
    step = spellings.zero_first(
        optimizer, lambda x, y: nn.functional.mse_loss(head(layer(x)[0][:, -1]), y)
    )
    return Work(step, tuple((data.normal(8, n, 16), data.normal(8, 1)) for n in _SIZES))


@workload()
def images_any_size(torch: Any) -> Work:
    """Inference on pictures of any size, scaled to one."""
    F = torch.nn.functional
    model = torch.nn.Conv2d(3, 8, 3, padding=1).eval()

    def step(x: Any) -> Any:
        with torch.no_grad():
            x = F.interpolate(x, size=(32, 32), mode="bilinear", align_corners=False)
            return F.relu(model(x)).mean((2, 3))

    data = Data(torch)
    return Work(step, tuple((data.uniform(1, 3, n + 20, 2 * n + 9),) for n in _SIZES))
