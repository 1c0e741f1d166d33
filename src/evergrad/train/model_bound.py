"""A bound on the model that a checkpoint describes.

The configuration in a file says how large the model is, and the weights beside it how large it may
be: a small file cannot have gigabytes allocated, or a million layers made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from evergrad.core.tensor import Tensor
from evergrad.memory.ledger import LEDGER
from evergrad.memory.tracking import attach, detach

# What a model may have beside the stored tensors: masks, tables, temporaries of its initial values.
_SPARE_BYTES, _SPARE_TENSORS, _FACTOR = 1 << 30, 4096, 8


class _Bound:
    """An observer of the ledger that rejects what is beyond a number of bytes and tensors."""

    def __init__(self, nbytes: int, count: int) -> None:
        self.nbytes = LEDGER.live + nbytes
        self.count = LEDGER.count + count

    def allocated(self, storage: Any) -> None:
        if LEDGER.live > self.nbytes or LEDGER.count > self.count:
            LEDGER.live -= storage.nbytes
            storage.nbytes = 0  # its destructor subtracts nothing
            raise MemoryError(
                "its configuration describes a model that is much larger than its weights"
            )

    def freed(self, storage: object) -> None: ...
    def held(self, nbytes: int) -> None: ...
    def used(self, nbytes: int) -> None: ...


@contextmanager
def no_larger_than(weights: dict[str, object]) -> Iterator[None]:
    """Inside, no model is made that is much larger than these weights."""
    stored = [value for value in weights.values() if isinstance(value, Tensor)]
    nbytes = sum(tensor._storage.nbytes for tensor in stored)
    bound = _Bound(_SPARE_BYTES + _FACTOR * nbytes, _SPARE_TENSORS + _FACTOR * len(stored))
    attach(bound, first=True)
    try:
        yield
    finally:
        detach(bound)
