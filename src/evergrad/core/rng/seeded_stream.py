"""The seed and the state of a generator: what a stream of random words is continued from.

:class:`~evergrad.core.rng.generator.Generator` adds the distributions.
"""

from __future__ import annotations

import operator
import os
import struct
from typing import Self

import numpy as np
import numpy.typing as npt

from evergrad.core.rng.bit_generators import MersenneTwister, Philox

DEFAULT_SEED = 67280421310721
"""The seed of a generator before ``manual_seed``; PyTorch's."""

_HEADER = struct.Struct("<8sBQ")
_MAGIC = b"evergrad"


def check_seed(seed: int) -> int:
    """A seed as an unsigned integer of 64 bits."""
    try:
        value = operator.index(seed)
    except TypeError:
        raise TypeError(f"manual_seed expects an int, but got {type(seed).__name__}") from None
    if not -(1 << 63) <= value < 1 << 64:
        raise ValueError(f"manual_seed expects a seed in [-2**63, 2**64), but got {value}")
    return value % (1 << 64)


class SeededStream:
    """A bit generator with its seed; its state is saved, restored, copied and pickled."""

    def __init__(self, device: object = "cpu", *, algorithm: str = "mt19937") -> None:
        if str(device) != "cpu":
            raise RuntimeError(f"Generator only exists for device 'cpu', but got {device!s}")
        if algorithm not in ("mt19937", "philox"):
            raise ValueError(f"algorithm must be 'mt19937' or 'philox', but got {algorithm!r}")
        self.device = "cpu"
        self._algorithm: type[MersenneTwister] | type[Philox]
        self._algorithm = MersenneTwister if algorithm == "mt19937" else Philox
        self._restart(DEFAULT_SEED)

    @property
    def algorithm(self) -> str:
        return self._algorithm.name

    def manual_seed(self, seed: int) -> Self:
        """Restart the stream of `seed`. Negative seeds count back from 2**64."""
        self._restart(check_seed(seed))
        return self

    def _restart(self, seed: int) -> None:
        self._seed = seed
        self._source: MersenneTwister | Philox = self._algorithm(seed)

    def seed(self) -> int:
        """Take a fresh seed from the operating system and return it."""
        self.manual_seed(int.from_bytes(os.urandom(8)))
        return self._seed

    def initial_seed(self) -> int:
        return self._seed

    def get_state(self) -> npt.NDArray[np.uint8]:
        """The whole state as bytes, in a private format that `set_state` reads."""
        packed = _HEADER.pack(_MAGIC, self._algorithm.code, self._seed) + self._source.pack()
        return np.frombuffer(packed, dtype=np.uint8).copy()

    def set_state(self, state: npt.ArrayLike) -> Self:
        """Continue from a state of `get_state`; the algorithm has to be the same."""
        array = np.asarray(state)
        if array.dtype != np.uint8:
            raise TypeError(f"expected the generator state as uint8, but got {array.dtype}")
        packed = array.tobytes()
        expected = len(SeededStream.get_state(self))
        if len(packed) != expected or not packed.startswith(_MAGIC):
            raise RuntimeError(
                f"Expected a {self.algorithm} generator state of size {expected} "
                f"but found the input RNG state size to be {len(packed)}"
            )
        _, _, seed = _HEADER.unpack_from(packed)
        self._restart(seed)
        self._source.unpack(packed[_HEADER.size :])
        return self

    def clone_state(self) -> Self:
        """A new generator at the same point of the same stream."""
        return type(self)(self.device, algorithm=self.algorithm).set_state(self.get_state())

    def __copy__(self) -> Self:
        return self.clone_state()

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self.clone_state()

    @property
    def offset(self) -> int:
        """Blocks of counter space consumed so far (philox)."""
        if not isinstance(self._source, Philox):
            raise RuntimeError("only a philox generator has an offset")
        return self._source.offset

    @offset.setter
    def offset(self, value: int) -> None:
        if not isinstance(self._source, Philox):
            raise RuntimeError("only a philox generator has an offset")
        self._source.offset = operator.index(value) % (1 << 64)
