"""The version that programs see: PyTorch's, which compares by numbers."""

from __future__ import annotations

import re
from typing import Any


def _numbers(version: Any) -> tuple[int, ...]:
    """The numbers of "2.13.0+cpu" or (2, 13)."""
    if isinstance(version, str):
        release = re.match(r"\d+(\.\d+)*", version)
        return tuple(int(part) for part in release.group().split(".")) if release else ()
    return tuple(int(part) for part in version)


class TorchVersion(str):
    """A version that is a string, and compares by its numbers with strings and tuples."""

    def _compare(self, other: object) -> int:
        own, theirs = _numbers(str(self)), _numbers(other)
        length = max(len(own), len(theirs))
        own += (0,) * (length - len(own))
        theirs += (0,) * (length - len(theirs))
        return (own > theirs) - (own < theirs)

    def __lt__(self, other: object) -> bool:
        return self._compare(other) < 0

    def __le__(self, other: object) -> bool:
        return self._compare(other) <= 0

    def __gt__(self, other: object) -> bool:
        return self._compare(other) > 0

    def __ge__(self, other: object) -> bool:
        return self._compare(other) >= 0


TORCH_VERSION = TorchVersion("2.13.0+evergrad")
