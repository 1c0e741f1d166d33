"""First calls of a compiled training step that names a class of a large library, beside the same
step without the name: seconds, the kind of the call, and the best of several compilations.

    python bench/first_call.py
"""

from __future__ import annotations

import importlib
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import evergrad as eg

CLASSES = (
    ("torch", "Tensor"), ("torch", "nn.Module"), ("jax", "Array"),
    ("matplotlib.pyplot", "Figure"), ("scipy.sparse", "csr_matrix"), ("pandas", "DataFrame"),
    ("numpy", "ma.masked"),
)  # fmt: skip
REPEATS = 5


def training_step(is_other: Callable[[Any], bool] | None) -> Any:
    """A compiled step that returns early for other arguments."""
    model = eg.nn.Sequential(eg.nn.Linear(8, 16), eg.nn.ReLU(), eg.nn.Linear(16, 2))
    optimizer = eg.optim.Adam(model.parameters())

    def step(x: Any) -> Any:
        if is_other is not None and is_other(x):
            return None
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return eg.compile(step)


def first_call(is_other: Callable[[Any], bool] | None) -> tuple[float, str]:
    """The seconds of the first call, the median of several steps, and how the second call ran."""
    x, seconds = eg.ones(4, 8), []
    for _ in range(REPEATS):
        step = training_step(is_other)
        began = time.perf_counter()
        step(x)
        seconds.append(time.perf_counter() - began)
    step(x)
    return statistics.median(seconds), step.last_call.kind


def test_of(module: str, name: str) -> Callable[[Any], bool]:
    """``isinstance(x, module.name)``, or ``x is module.name`` of an object, as code spells it."""
    scope: dict[str, Any] = {"library": importlib.import_module(module)}
    held: Any = scope["library"]
    for part in name.split("."):
        held = getattr(held, part)
    text = f"isinstance(x, library.{name})" if isinstance(held, type) else f"x is library.{name}"
    return eval(f"lambda x: {text}", scope)


def main() -> None:
    warnings.simplefilter("ignore")
    first_call(None)  # kernels are compiled or loaded once
    plain, kind = first_call(None)
    print(f"{'without':26} {plain * 1e3:8.1f} ms  {kind}")
    for module, name in CLASSES:
        try:
            is_other = test_of(module, name)
        except ImportError:
            print(f"{module}.{name}: not installed")
            continue
        seconds, kind = first_call(is_other)
        print(f"{module + '.' + name:26} {seconds * 1e3:8.1f} ms  {kind}")


if __name__ == "__main__":
    main()
