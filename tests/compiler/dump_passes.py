"""The graphs of five models after every pass, as text that is kept in ``dumps``.

    python -m tests.compiler.dump_passes

writes the files anew, after a pass was changed on purpose. With ``--print`` it prints them instead,
or those of the models named after it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import evergrad as eg
from evergrad import nn
from evergrad.compiler.api import Compiled
from evergrad.compiler.passes.dump import dump
from evergrad.compiler.passes.pipeline import Target, Written, optimize
from evergrad.core.rng.default_generator import using_generator
from evergrad.core.trace import Graph
from evergrad.nn import functional as F

from .models import Block

FOLDER = Path(__file__).parent / "dumps"

Loss = Callable[..., Any]


def training_step(model: nn.Module, loss: Loss, optimizer: Any = eg.optim.SGD) -> Loss:
    updates = optimizer(model.parameters(), lr=0.1)

    def step(*batch: Any) -> Any:
        updates.zero_grad()
        found = loss(model, *batch)
        found.backward()
        updates.step()
        return found.detach()

    return step


def mlp() -> tuple[Loss, tuple[Any, ...]]:
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3))
    step = training_step(model, lambda model, x, y: F.cross_entropy(model(x), y), eg.optim.AdamW)
    return step, (eg.ones(6, 4), eg.zeros(6, dtype=eg.int64))


def conv_net() -> tuple[Loss, tuple[Any, ...]]:
    layers = (
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3, bias=True), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3),
    )  # fmt: skip
    step = training_step(nn.Sequential(*layers), lambda model, x, y: F.cross_entropy(model(x), y))
    return step, (eg.ones(2, 2, 12, 12), eg.zeros(2, dtype=eg.int64))


def gpt_block() -> tuple[Loss, tuple[Any, ...]]:
    step = training_step(Block(8, 2, causal=True), lambda model, x: model(x).square().mean())
    return step, (eg.ones(2, 6, 8),)


def lstm() -> tuple[Loss, tuple[Any, ...]]:
    step = training_step(nn.LSTM(3, 4, batch_first=True), lambda model, x: model(x)[0].sum())
    return step, (eg.ones(2, 5, 3),)


class Dropouts(nn.Module):
    """A dropout mask and normal noise."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        x = F.dropout(F.relu(self.first(x)), 0.25)
        return self.second(x) + eg.randn(2)


def dropout() -> tuple[Loss, tuple[Any, ...]]:
    return training_step(Dropouts(), lambda model, x: model(x).square().sum()), (eg.ones(6, 4),)


MODELS: dict[str, Callable[[], tuple[Loss, tuple[Any, ...]]]] = {
    "mlp": mlp, "conv_net": conv_net, "gpt_block": gpt_block, "lstm": lstm, "dropout": dropout,
    "dropout_philox": dropout,
}  # fmt: skip


def dump_of(name: str) -> str:
    """The graphs of a model, without those after passes that changed nothing."""
    parts: list[str] = []
    graphs: list[Graph] = []

    def observe(name: str, graph: Graph) -> None:
        title = f"== {name}: {len(graph.equations)} equations"
        is_new = not graphs or graph is not graphs[-1]
        parts.append(f"{title}\n{dump(graph)}\n" if is_new else f"{title}, unchanged\n")
        graphs.append(graph)

    algorithm = "philox" if name.endswith("philox") else "mt19937"
    with using_generator(eg.Generator(algorithm=algorithm)):
        step, batch = MODELS[name]()
        captured = Compiled(step).compiled_for(batch, {})[0].captured
        written = Written(captured.result_count, len(captured.written))
        optimize(captured.graph, Target.STEP, observe, written)
    return "\n".join(parts)


if __name__ == "__main__":
    for name in sys.argv[2:] or MODELS:
        if sys.argv[1:2] == ["--print"]:
            print(dump_of(name))
        else:
            FOLDER.mkdir(exist_ok=True)
            (FOLDER / f"{name}.txt").write_text(dump_of(name), encoding="utf-8")
