"""Where Python's objects keep what they hold.

A slot of an object, the content of a cell and the memory of an array are words at fixed distances
from where the object begins. Native code that knows these reads them in a nanosecond and touches
nothing else, no reference count and no shared table, which other threads' processors would have to
hand over. The distances are not assumed: they are found in examples.
"""

from __future__ import annotations

import ctypes
import sysconfig
import threading
from collections.abc import Sequence
from functools import cache
from types import CellType
from typing import Any

import numpy as np

from evergrad.memory.lines import copied_apart

_WORD = ctypes.sizeof(ctypes.c_void_p)

# How native code reads a table: a number, or an address.
TABLE_TEXT = r"""
define internal i64 @entry(ptr %table, i64 %number) alwaysinline nounwind {
  %at = getelementptr i64, ptr %table, i64 %number
  %word = load i64, ptr %at
  ret i64 %word
}

define internal ptr @address(ptr %table, i64 %number) alwaysinline nounwind {
  %at = getelementptr ptr, ptr %table, i64 %number
  %word = load ptr, ptr %at
  ret ptr %word
}
"""
# How it reads a word of an object that lies so many bytes from its beginning.
WORD_TEXT = r"""
define internal ptr @word(ptr %object, i64 %distance) alwaysinline nounwind {
  %at = getelementptr i8, ptr %object, i64 %distance
  %word = load ptr, ptr %at
  ret ptr %word
}
"""


@cache
def slot_of(kind: type, name: str) -> int:
    """How far from its beginning an object of this kind, or one derived from it, has a slot."""
    members = {"__slots__": (), "__init__": object.__init__, "__del__": lambda example: None}
    example, held = type(kind)("Example", (kind,), members)(), object()
    object.__setattr__(example, name, held)
    return _only([_places(_words(example), id(held))]) * _WORD


@cache
def cell_content() -> int:
    """How far from its beginning a cell has what it holds."""
    held = object()
    cell = CellType(held)
    return _only([_places(_words(cell), id(held))]) * _WORD


@cache
def kind_word() -> int:
    """How far from its beginning an object has its class."""
    kinds: list[type] = [type(name, (), {"__slots__": ()}) for name in ("One", "Another")]
    return _only([_places(_words(kind()), id(kind)) for kind in kinds]) * _WORD


@cache
def array_start() -> int:
    """How far from its beginning an array has the address of its elements."""
    arrays = [np.zeros(n) for n in (2, 3)]
    return _only([_places(_words(a), a.ctypes.data) for a in arrays]) * _WORD


@cache
def array_flags() -> int:
    """How far from its beginning an array has its flags (32 bits)."""
    square = np.zeros((3, 3))
    arrays = [square, square.T, square[::2, ::2], np.zeros(1)]
    return _only([_places(_words(a, ctypes.c_int32), a.flags.num) for a in arrays]) * 4


@cache
def reference_count() -> int | None:
    """How far from its beginning an object has the number of its references (32 bits); ``None``
    where that is no plain number."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    example = object()
    before = _words(example, ctypes.c_int32)
    held = [example] * 1000
    after = _words(example, ctypes.c_int32)
    grown = [n for n, (a, b) in enumerate(zip(before, after, strict=True)) if b - a == len(held)]
    return grown[0] * 4 if len(grown) == 1 else None


@cache
def times_taken() -> int | None:
    """How far from its beginning a lock that one thread may take several times has the number of
    times; ``None`` where that is no plain number."""
    lock = threading.RLock()
    free = _words(lock)
    for _ in range(3):
        lock.acquire()
    taken = _words(lock)
    for _ in range(3):
        lock.release()
    found = [n for n, pair in enumerate(zip(free, taken, strict=True)) if pair == (0, 3)]
    return found[0] * _WORD if len(found) == 1 else None


def table(rows: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Numbers and addresses for native code to read, row by row."""
    return copied_apart(rows, np.int64).reshape(-1)


def _words(example: Any, kind: Any = ctypes.c_size_t) -> list[int]:
    size = object.__sizeof__(example) // ctypes.sizeof(kind)
    return list((kind * size).from_address(id(example)))


def _places(words: list[int], value: int) -> set[int]:
    return {place for place, word in enumerate(words) if word == value}


def _only(found: list[set[int]]) -> int:
    """The one place that all examples have in common."""
    (place,) = set.intersection(*found)
    return place
