"""What a program may ask about the namespace itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evergrad.array_api.data_types import isdtype
from evergrad.core import dtypes
from evergrad.core.device import CPU, Device
from evergrad.core.dtypes import dtype
from evergrad.ops.rows.creation.constants import check_place

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike

# The standard's element types that the engine has: of the unsigned integers only the smallest.
STANDARD_DTYPES = {
    found.name: found for found in dtypes.ALL if found.name not in ("float16", "bfloat16")
}
_MOST_DIMENSIONS = 64  # NumPy's


class NamespaceInfo:
    """Devices, element types and abilities."""

    def capabilities(self) -> dict[str, object]:
        """Which of the standard's optional abilities there are."""
        return {
            "boolean indexing": True,
            "data-dependent shapes": True,
            "max dimensions": _MOST_DIMENSIONS,
        }

    def default_device(self) -> Device:
        """Where arrays are made."""
        return CPU

    def devices(self) -> list[Device]:
        """Where arrays can be made."""
        return [CPU]

    def default_dtypes(self, *, device: DeviceLike = None) -> dict[str, dtype]:
        """The element types that creation functions choose."""
        check_place(device)
        real = dtypes.get_default_dtype()
        return {
            "real floating": real,
            "complex floating": real.to_complex(),
            "integral": dtypes.int64,
            "indexing": dtypes.int64,
        }

    def dtypes(self, *, device: DeviceLike = None, kind: object = None) -> dict[str, dtype]:
        """The standard's element types, all of them or those of a kind."""
        check_place(device)
        return {
            name: found
            for name, found in STANDARD_DTYPES.items()
            if kind is None or isdtype(found, kind)
        }
