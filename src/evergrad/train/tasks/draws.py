"""Random numbers by name: the same seed, purpose and number always give the same ones."""

from __future__ import annotations

import hashlib

from evergrad.core.rng.default_generator import Generator


def draw(seed: int, purpose: str, number: int = 0) -> Generator:
    """The generator for one purpose at one number; no two of them share their stream."""
    name = f"{seed}/{purpose}/{number}".encode()
    key = int.from_bytes(hashlib.blake2b(name, digest_size=8).digest())
    generator = Generator(algorithm="philox")
    generator.manual_seed(key)
    return generator
