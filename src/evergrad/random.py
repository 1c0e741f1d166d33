"""The random state of the calling thread, as ``torch.random`` offers it."""

from __future__ import annotations

from typing import Any

from evergrad.core.rng.default_generator import default_generator as _default_generator
from evergrad.core.rng.default_generator import (
    fork_rng,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)

__all__ = [
    "fork_rng",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "seed",
    "set_rng_state",
]


def __getattr__(name: str) -> Any:
    if name == "default_generator":
        return _default_generator()
    raise AttributeError(f"module 'evergrad.random' has no attribute {name!r}")
