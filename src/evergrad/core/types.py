"""The types that signatures share: what a caller may pass, in one place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np

    from evergrad.core.device import Device
    from evergrad.core.dtypes import dtype
    from evergrad.core.memory_format import layout, memory_format

# One number for all dimensions, or one for each.
Ints: TypeAlias = "int | Sequence[int]"
Floats: TypeAlias = "float | Sequence[float]"
# An element type in any spelling: ours, NumPy's, or a Python class; ``None`` for the default.
DtypeLike: TypeAlias = "dtype | np.dtype[np.generic] | type | None"
DeviceLike: TypeAlias = "Device | str | int | None"
LayoutLike: TypeAlias = "layout | None"
MemoryFormatLike: TypeAlias = "memory_format | None"
