"""The random state of the calling thread, as ``torch.random`` offers it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evergrad.core.rng.default_generator import (
    Generator,
    fork_rng,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)
from evergrad.core.rng.default_generator import default_generator as _default_generator
from evergrad.lazy import unknown_name

__all__ = [
    "fork_rng",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "seed",
    "set_rng_state",
]


def _find(name: str) -> Generator:
    if name == "default_generator":
        return _default_generator()
    raise unknown_name(__name__, name)


if TYPE_CHECKING:
    default_generator: Generator
else:
    __getattr__ = _find
