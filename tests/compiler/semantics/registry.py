"""The register of cases, and the few values they share.

A case is a generator function ``case(lib, wrap)``. ``lib`` is evergrad or PyTorch; ``wrap`` is the
identity or compiles. It builds its own state, wraps the step, calls it several times with state
changed between the calls, and yields what can be observed: tensors, numbers, strings, containers
and dataclasses of them, in any nesting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Seen = Iterator[Any]


@dataclass(frozen=True)
class Case:
    """A registered case; ``torch`` says whether it uses only what PyTorch has too."""

    name: str
    function: Callable[[Any, Any], Seen]
    torch: bool


CASES: dict[str, Case] = {}


def case(function: Any = None, *, torch: bool = True) -> Any:
    """Register a case under ``kind/name``, the kind being the module it is in."""
    if function is None:
        return lambda f: case(f, torch=torch)
    name = f"{function.__module__.rpartition('.')[2]}/{function.__name__}"
    if name in CASES:
        raise ValueError(f"two cases are named {name}")
    CASES[name] = Case(name, function, torch)
    return function


def ramp(lib: Any, *shape: int, start: float = -0.3, scale: float = 0.1) -> Any:
    """Evenly spaced float32 values in row-major order."""
    return (lib.arange(math.prod(shape), dtype=lib.float32) * scale + start).reshape(shape)


def batch(lib: Any, n: int, rows: int = 4, columns: int = 3) -> Any:
    """The inputs of call ``n``: other values at each call, same shape."""
    return lib.sin(ramp(lib, rows, columns, start=0.7 * n, scale=0.9))


def leaf(lib: Any, *values: float) -> Any:
    """A one-dimensional parameter."""
    return lib.tensor(list(values), requires_grad=True)


def layer(lib: Any, inputs: int = 3, outputs: int = 2) -> Any:
    """A linear layer with fixed weights."""
    module = lib.nn.Linear(inputs, outputs)
    with lib.no_grad():
        module.weight.copy_(ramp(lib, outputs, inputs))
        module.bias.copy_(ramp(lib, outputs, start=0.05))
    return module


def mlp(lib: Any) -> Any:
    """Two layers with fixed weights."""
    return lib.nn.Sequential(layer(lib, 3, 4), lib.nn.Tanh(), layer(lib, 4, 2))


def weights(module: Any) -> list[Any]:
    """The parameters and buffers as they are now, with the gradients."""
    found = [(p, p.grad) for p in module.parameters()]
    return [found, list(module.buffers())]


@dataclass(frozen=True)
class Raised:
    """An exception of a call: its type, the built-in type it is, the beginning of its message."""

    type: str
    base: str
    head: str


def attempt(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of a call, or what it raised."""
    try:
        return function(*args, **kwargs)
    except Exception as error:
        head = str(error).strip().split("\n")[0]
        base = next(t for t in type(error).__mro__ if t.__module__ == "builtins")
        return Raised(type(error).__name__, base.__name__, head[:24])
