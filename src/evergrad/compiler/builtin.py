"""Native code as builtin functions of Python.

A call by ctypes takes some tenths of a microsecond, which is much where all of Python's part of a
call shall take a few. A builtin function takes its arguments as objects and costs next to nothing;
what it does with them is up to its code, which is written in the functions of Python's C interface.
"""

from __future__ import annotations

import ctypes
from typing import Any

# What a function is called with beside its own object: nothing, or an array and a count.
NOTHING, SEVERAL = 0x4, 0x80

_make = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p
)(("PyCFunction_NewEx", ctypes.pythonapi))  # fmt: skip
# Functions hold the address of their description for as long as they live.
_descriptions: dict[int, _Description] = {}


class _Description(ctypes.Structure):
    """What Python knows of a builtin function (``PyMethodDef``)."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("code", ctypes.c_void_p),
        ("takes", ctypes.c_int),
        ("text", ctypes.c_char_p),
    )


def builtin(name: str, address: int, takes: int, own: Any = None) -> Any:
    """Code at an address as a function whose first argument is an object of its own."""
    description = _descriptions.get(address)
    if description is None:
        made = _Description(name.encode(), address, takes, None)
        description = _descriptions.setdefault(address, made)
    return _make(ctypes.addressof(description), own, None)
