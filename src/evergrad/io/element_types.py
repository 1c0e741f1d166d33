"""The element types that stand in files, and the dtypes they are loaded as.

A type evergrad does not calculate with is loaded as the smallest one that holds all its values:
float8 as float32, unsigned integers as signed ones of twice the width.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from evergrad.core import dtypes
from evergrad.core.dtypes import dtype
from evergrad.core.tensor import Array


class ElementType(NamedTuple):
    """An element type by PyTorch's name: how it stands in a file, and what it becomes."""

    name: str
    stored: np.dtype[Any]
    loaded: dtype

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def of(self, raw: Array) -> Array:
        """Bytes of a file as elements: the same memory, unless it is of no use as it is."""
        found = raw.view(self.stored)
        if self.stored != self.loaded.np:
            return found.astype(self.loaded.np)
        return found if found.flags.aligned else found.copy()


_WIDENED: dict[str, tuple[Any, dtype]] = {
    "uint16": (np.uint16, dtypes.int32),
    "uint32": (np.uint32, dtypes.int64),
    "float8_e4m3fn": (ml_dtypes.float8_e4m3fn, dtypes.float32),
    "float8_e5m2": (ml_dtypes.float8_e5m2, dtypes.float32),
    "float8_e4m3fnuz": (ml_dtypes.float8_e4m3fnuz, dtypes.float32),
    "float8_e5m2fnuz": (ml_dtypes.float8_e5m2fnuz, dtypes.float32),
    "float8_e8m0fnu": (ml_dtypes.float8_e8m0fnu, dtypes.float32),
}

ELEMENT_TYPES = {
    name: ElementType(name, np.dtype(stored), loaded) for name, (stored, loaded) in _WIDENED.items()
}
ELEMENT_TYPES.update({t.name: ElementType(t.name, t.np, t) for t in dtypes.ALL})


def element_type(type: dtype) -> ElementType:
    """How one of our own dtypes stands in a file."""
    return ELEMENT_TYPES[type.name]
