"""The random generators of a worker: evergrad's, Python's and NumPy's."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core.rng.default_generator import get_rng_state, manual_seed, set_rng_state

if TYPE_CHECKING:
    from evergrad.core.types import Args

RandomStates = dict[str, Any]


def seed_worker(base_seed: int, worker_id: int) -> int:
    """Give each worker streams of its own, the ones PyTorch gives it; returns the seed."""
    seed = base_seed + worker_id
    manual_seed(seed)
    random.seed(seed)
    entropy = [worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    np.random.seed(np.random.SeedSequence(entropy).generate_state(4))
    return seed


def random_states() -> RandomStates:
    """Where the generators stand, in plain values."""
    name, key, *rest = _numpy_state()
    return {
        "evergrad": get_rng_state(),
        "python": random.getstate(),
        "numpy": (name, key.tolist(), *rest),
    }


def set_random_states(states: RandomStates) -> None:
    """Continue from what :func:`random_states` gave."""
    set_rng_state(states["evergrad"])
    random.setstate(states["python"])
    name, key, *rest = states["numpy"]
    np.random.set_state((name, np.array(key, np.uint32), *rest))


def _numpy_state() -> Args:
    state: Any = np.random.get_state(legacy=True)
    return state  # type: ignore[no-any-return]


class RandomWatch:
    """The states of the generators, if they have changed since the last call."""

    def __init__(self) -> None:
        self._seen = _fingerprint()

    def moved(self) -> RandomStates | None:
        now = _fingerprint()
        if now == self._seen:
            return None
        self._seen = now
        return random_states()


def _fingerprint() -> tuple[bytes, object, bytes, object]:
    _, key, *rest = _numpy_state()
    return get_rng_state().array().tobytes(), random.getstate(), key.tobytes(), rest
