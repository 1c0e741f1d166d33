"""Functions of machine code with and without the GIL.

A prototype is a class of its own, which refers to itself: made anew for every function it would be
left to the garbage collector. There is one for each signature.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction

# The type of the result, or none, and those of the arguments.
Signature = tuple[Any, ...]


@cache
def _prototypes(signature: Signature) -> tuple[Any, Any]:
    return ctypes.PYFUNCTYPE(*signature), ctypes.CFUNCTYPE(*signature)


def functions_at(address: int, signature: Signature) -> tuple[AnyFunction, AnyFunction]:
    """The function at an address, as one that keeps the GIL and one that releases it."""
    keeping, releasing = _prototypes(signature)
    return keeping(address), releasing(address)
