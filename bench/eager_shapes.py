"""Eager steps of batch sizes that never repeat, beside PyTorch.

    python bench/eager_shapes.py [--shapes N] [--only NAME]

Each step has another batch size (or length). Both libraries run in this process, in turns, on one
thread; what is compared is processor time from the sixth step on, medians and sums. The last column
is the same after the shapes were met before.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import evergrad

try:
    import torch
except ImportError:
    sys.exit("PyTorch 2.13.0 is needed for the comparison: pip install torch==2.13.0")

Step = Callable[..., Any]
Make = Callable[[int], tuple[Any, ...]]

# Steps that are not counted: the first shapes of a structure are traced.
_FIRST = 5


def training(lib: Any, model: Callable[..., Any], parameters: Iterable[Any], loss: str) -> Step:
    optimizer = lib.optim.Adam(list(parameters), lr=1e-3)
    loss_of = getattr(lib.nn.functional, loss)

    def step(x: Any, y: Any) -> None:
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()

    return step


def mlp(lib: Any) -> tuple[Step, Make]:
    nn = lib.nn
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    step = training(lib, model, model.parameters(), "cross_entropy")
    return step, lambda n: (lib.randn(n, 64), lib.randint(0, 10, (n,)))


def normed_mlp(lib: Any) -> tuple[Step, Make]:
    nn = lib.nn
    layers = nn.Linear(64, 128), nn.LayerNorm(128), nn.GELU(), nn.Linear(128, 128), nn.SiLU()
    model = nn.Sequential(*layers, nn.Linear(128, 1))
    step = training(lib, model, model.parameters(), "mse_loss")
    return step, lambda n: (lib.randn(n, 64), lib.randn(n, 1))


def cnn(lib: Any) -> tuple[Step, Make]:
    nn = lib.nn
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(16 * 49, 10),
    )  # fmt: skip
    step = training(lib, model, model.parameters(), "cross_entropy")
    return step, lambda n: (lib.randn(n, 1, 28, 28), lib.randint(0, 10, (n,)))


def lstm(lib: Any) -> tuple[Step, Make]:
    layer, head = lib.nn.LSTM(16, 32, batch_first=True), lib.nn.Linear(32, 1)
    parameters = [*layer.parameters(), *head.parameters()]
    step = training(lib, lambda x: head(layer(x)[0][:, -1]), parameters, "mse_loss")
    return step, lambda n: (lib.randn(8, n, 16), lib.randn(8, 1))


def attention(lib: Any) -> tuple[Step, Make]:
    nn = lib.nn
    words, mix, norm, head = (
        nn.Embedding(96, 64), nn.Linear(64, 192), nn.LayerNorm(64), nn.Linear(64, 96),
    )  # fmt: skip
    parameters = [p for layer in (words, mix, norm, head) for p in layer.parameters()]

    def model(tokens: Any) -> Any:
        x = words(tokens)
        b, n, c = x.shape
        q, k, v = (part.view(b, n, 4, 16).transpose(1, 2) for part in mix(norm(x)).split(64, dim=2))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return head(x + y.transpose(1, 2).reshape(b, n, c)).reshape(-1, 96)

    step = training(lib, model, parameters, "cross_entropy")
    return step, lambda n: (lib.randint(0, 96, (4, n)), lib.randint(0, 96, (4 * n,)))


NETS: dict[str, Callable[[Any], tuple[Step, Make]]] = {
    "mlp": mlp, "normed_mlp": normed_mlp, "cnn": cnn, "lstm": lstm, "attention": attention,
}  # fmt: skip


def measure(name: str, sizes: list[int]) -> tuple[dict[Any, list[float]], dict[Any, list[float]]]:
    """Seconds of processor time of each step, when its size is new and later."""
    steps = {lib: NETS[name](lib) for lib in (torch, evergrad)}
    rounds: list[dict[Any, list[float]]] = []
    for _ in range(3):
        times: dict[Any, list[float]] = {torch: [], evergrad: []}
        for n in sizes:
            for lib, (step, make) in steps.items():
                given = make(n)
                start = time.thread_time()
                step(*given)
                times[lib].append(time.thread_time() - start)
        rounds.append(times)
    return rounds[0], rounds[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--shapes", type=int, default=60)
    parser.add_argument("--only", choices=NETS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    evergrad.set_num_threads(1)
    sizes = random.Random(1).sample(range(10, 10 + 2 * options.shapes), options.shapes)
    print(f"{'':12}{'PyTorch':>10}{'evergrad':>10}   median     sum  met before")
    for name in [options.only] if options.only else NETS:
        new, again = measure(name, sizes)
        theirs, mine = new[torch][_FIRST:], new[evergrad][_FIRST:]
        middle = statistics.median(theirs), statistics.median(mine)
        later = statistics.median(again[evergrad]) / statistics.median(again[torch])
        print(
            f"{name:12}{1e6 * middle[0]:8.0f}us{1e6 * middle[1]:8.0f}us"
            f"{middle[1] / middle[0]:9.2f}{sum(mine) / sum(theirs):8.2f}{later:12.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
