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
_make_method = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_void_p)(
    ("PyDescr_NewMethod", ctypes.pythonapi)
)
_type_slot = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_int)(
    ("PyType_GetSlot", ctypes.pythonapi)
)
_increase = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", ctypes.pythonapi))
# The numbers of what classes do (``Py_tp_new``).
_SLOTS = {"new": 65}
# Functions hold the address of their description for as long as they live.
_descriptions: dict[tuple[str, int, int], _Description] = {}


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
    takes = _ONE_ARGUMENT if takes_one else _NO_ARGUMENTS
    return _make(_description(name, address, takes), own, None)


def method(kind: type, name: str, address: int) -> Any:
    """Code ``PyObject *code(PyObject *self, PyObject *nothing)`` as a method of a class, without
    arguments."""
    return _make_method(kind, _description(name, address, _NO_ARGUMENTS))


def type_slot(kind: type, name: str) -> int:
    """The address of the function by which a class does something."""
    return int(_type_slot(kind, _SLOTS[name]))


def keep_forever(*things: Any) -> None:
    """Let objects live until the process has ended, after Python has cleared all modules: native
    code that is called then still reads them."""
    for thing in things:
        _increase(thing)


def _description(name: str, address: int, takes: int) -> int:
    """The address of a description."""
    key = name, address, takes
    found = _descriptions.get(key)
    if found is None:
        made = _Description(name.encode(), address, takes, None)
        found = _descriptions.setdefault(key, made)
        keep_forever(found)
    return ctypes.addressof(found)
