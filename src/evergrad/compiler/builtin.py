"""Native code as builtin functions of Python.

A call by ctypes takes some tenths of a microsecond, which is much where all of Python's part of a
call shall take a few. A builtin function costs next to nothing. Its code is given an object of its
own, and takes that apart with the functions of Python's C interface.
"""

from __future__ import annotations

import ctypes
from typing import Any

# Say that a function takes no arguments (``METH_NOARGS``), or one (``METH_O``).
_NO_ARGUMENTS, _ONE_ARGUMENT = 4, 8

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


def builtin(name: str, address: int, own: Any, takes_one: bool = False) -> Any:
    """Code ``PyObject *code(PyObject *own, PyObject *argument)`` as a function without arguments,
    or with one."""
    description = _descriptions.get(address)
    if description is None:
        takes = _ONE_ARGUMENT if takes_one else _NO_ARGUMENTS
        made = _Description(name.encode(), address, takes, None)
        description = _descriptions.setdefault(address, made)
    return _make(ctypes.addressof(description), own, None)
