"""The parts of the step of ``bench/call.py``, and the table of its spellings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Call = Callable[[], Any]


class Parts:
    """A model with its optimizer and batch."""

    def __init__(self, lib: Any, optimizer: str = "SGD") -> None:
        self.lib, self.F = lib, lib.nn.functional
        lib.manual_seed(0)
        nn = lib.nn
        self.model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
        self.optimizer = getattr(lib.optim, optimizer)(self.model.parameters(), lr=1e-3)
        self.x, self.y = lib.randn(8, 8), lib.randn(8, 1)

    def loss(self, x: Any, y: Any) -> Any:
        return self.F.mse_loss(self.model(x), y)

    def train(self, x: Any, y: Any, scale: Any = None) -> Any:
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        (loss if scale is None else loss * scale).backward()
        self.optimizer.step()
        return loss.detach()


# A library and its way to compile -> the call.
SPELLINGS: dict[str, Callable[[Any, Any], Call]] = {}


def spelling(function: Callable[[Any, Any], Call]) -> Callable[[Any, Any], Call]:
    SPELLINGS[function.__name__.replace("_", " ")] = function
    return function
