"""The plain objects of Python and NumPy that a file may have made, each from checked arguments.

What is dangerous about a constructor is what it does with arguments nobody expects:
``bytearray(10**12)`` allocates. So a file reaches these functions, not the constructors.
"""

from __future__ import annotations

import datetime
import pathlib
import re
from argparse import Namespace
from collections import Counter, OrderedDict, defaultdict, deque
from types import SimpleNamespace
from typing import Any

import numpy as np

from evergrad.core.shapes import Size
from evergrad.errors import FileFormatError

_ENCODINGS = ("latin1", "latin-1", "ascii", "utf-8", "utf8")
_LARGEST_KEY = 1 << 64
_MOST_IN_KEY = 1000
_NUMPY_TYPE = re.compile(r"b1|[iu][1248]|f[248]|c8|c16|[SU]\d{1,4}")
_FACTORIES = (
    None, list, dict, set, tuple, int, float, complex, bool, str, bytes, OrderedDict, Counter,
)  # fmt: skip


def refused(what: str) -> FileFormatError:
    return FileFormatError(f"the pickle makes {what}: the file is corrupted, or hostile.")


def check_key(key: Any) -> None:
    """Make sure that a dictionary can take a key, and quickly.

    The hash of a nested tuple visits every part, however often it is repeated, and integers of any
    length can be chosen to have one hash; both would let a small file keep the reader busy.
    """
    pending = [key]
    visited = 0
    while pending:
        item = pending.pop()
        visited += 1
        if isinstance(item, tuple):
            visited += len(item)
            if visited > _MOST_IN_KEY:
                raise refused("a key of very many parts")
            pending.extend(item)
        elif type(item) is int and abs(item) > _LARGEST_KEY:
            raise refused("a key of a very large number")
        elif type(item).__hash__ is None:
            raise refused(f"a key of a {type(item).__name__}")


def insert(target: Any, items: list[Any]) -> None:
    """Keys and values, in turns, into a dictionary."""
    if len(items) % 2:
        raise refused("a dictionary with a key that has no value")
    for key, value in zip(items[::2], items[1::2], strict=True):
        check_key(key)
        target[key] = value


def make_set(items: Any = ()) -> set[Any]:
    return set(_members(items, "a set"))


def make_frozenset(items: Any = ()) -> frozenset[Any]:
    return frozenset(_members(items, "a frozenset"))


def _members(items: Any, what: str) -> Any:
    if type(items) not in (list, tuple, set, frozenset):
        raise refused(f"{what} of something else than a list")
    for item in items:
        check_key(item)
    return items


def make_ordered_dict(items: Any = ()) -> OrderedDict[Any, Any]:
    made: OrderedDict[Any, Any] = OrderedDict()
    _fill(made, items)
    return made


def make_counter(items: Any = ()) -> Counter[Any]:
    made: Counter[Any] = Counter()
    _fill(made, items)
    return made


def make_defaultdict(factory: Any = None, items: Any = ()) -> defaultdict[Any, Any]:
    if not any(factory is allowed for allowed in _FACTORIES):
        raise refused("a defaultdict of something else than plain containers and numbers")
    made: defaultdict[Any, Any] = defaultdict(factory)
    _fill(made, items)
    return made


def _fill(target: Any, items: Any) -> None:
    if type(items) in (dict, OrderedDict):
        items = list(items.items())
    if type(items) not in (list, tuple) or not all(
        type(pair) in (list, tuple) and len(pair) == 2 for pair in items
    ):
        raise refused("a dictionary of something else than pairs")
    insert(target, [part for pair in items for part in pair])


def make_deque(items: Any = (), maxlen: Any = None) -> deque[Any]:
    if type(items) not in (list, tuple) or not (maxlen is None or type(maxlen) is int):
        raise refused("a deque of something else than a list")
    return deque(items, maxlen)


def make_size(sizes: Any = ()) -> Size:
    if type(sizes) not in (list, tuple, Size) or not all(type(n) is int for n in sizes):
        raise refused("a size of something else than whole numbers")
    return Size(sizes)


def make_bytes(text: Any = "", encoding: Any = "latin1") -> bytes:
    """Bytes as protocol 2 writes them: text, and how it is encoded."""
    if type(text) is not str or type(encoding) is not str or encoding not in _ENCODINGS:
        raise refused("bytes of something else than text")
    return text.encode(encoding)


def make_bytearray(data: Any = b"", encoding: Any = "latin1") -> bytearray:
    if type(data) in (bytes, bytearray):
        return bytearray(data)
    return bytearray(make_bytes(data, encoding))


def make_complex(real: Any = 0.0, imag: Any = 0.0) -> complex:
    if type(real) not in (int, float) or type(imag) not in (int, float):
        raise refused("a complex number of something else than numbers")
    return complex(real, imag)


def make_slice(*args: Any) -> slice:
    return slice(*args)


def make_range(*args: Any) -> range:
    return range(*args)


def make_namespace(*args: Any) -> Namespace:
    _refuse_arguments(args, "a Namespace")
    return Namespace()


def make_simple_namespace(*args: Any) -> SimpleNamespace:
    _refuse_arguments(args, "a SimpleNamespace")
    return SimpleNamespace()


def _refuse_arguments(args: tuple[Any, ...], what: str) -> None:
    if args:
        raise refused(f"{what} with arguments")


def make_path(*parts: Any) -> pathlib.PurePath:
    if not all(type(part) is str for part in parts):
        raise refused("a path of something else than text")
    return pathlib.Path(*parts)


def time_maker(kind: Any) -> Any:
    """A function that makes dates, times or time spans."""

    def make_time(*args: Any) -> Any:
        if not all(
            type(arg) in (int, bytes, datetime.timezone, datetime.timedelta) for arg in args
        ):
            raise refused(f"a {kind.__name__} of something else than numbers")
        return kind(*args)

    return make_time


# -- NumPy --------------------------------------------------------------------------------------


def make_numpy_dtype(name: Any, align: Any = False, copy: Any = False) -> np.dtype[Any]:
    if type(name) is not str or not _NUMPY_TYPE.fullmatch(name):
        raise refused("an element type of NumPy that has no simple name")
    return np.dtype(name)


def set_numpy_dtype(made: np.dtype[Any], state: Any) -> None:
    """What a pickle tells of an element type besides its name must be nothing new."""
    is_plain = type(state) is tuple and len(state) >= 5 and state[2:5] == (None, None, None)
    if not is_plain or state[1] not in ("<", "|", "="):
        raise refused("an element type of NumPy with fields, or in the other byte order")


def make_numpy_scalar(dtype: Any, data: Any = b"") -> Any:
    if type(data) is str:  # bytes that Python 2 wrote
        data = make_bytes(data)
    if not isinstance(dtype, np.dtype) or type(data) is not bytes or len(data) != dtype.itemsize:
        raise refused("a number of NumPy of other bytes than its own")
    return np.frombuffer(data, _plain(dtype))[0]


def make_numpy_array(cls: Any, shape: Any, kind: Any) -> np.ndarray[Any, Any]:
    """An array without elements, as ``BUILD`` expects it."""
    if cls is not np.ndarray or type(shape) is not tuple or shape != (0,):
        raise refused("an array of NumPy with elements that are not there")
    return np.empty(0, np.int8)


def set_numpy_array(made: np.ndarray[Any, Any], state: Any) -> None:
    """The shape, type and elements of an array."""
    if type(state) is not tuple or len(state) != 5:
        raise refused("an array of NumPy without its shape")
    _, shape, dtype, _, data = state
    shape = make_size(shape)
    if not isinstance(dtype, np.dtype) or type(data) is not bytes or len(shape) > 64:
        raise refused("an array of NumPy of other elements than numbers")
    if min(shape, default=1) < 0 or shape.numel() * _plain(dtype).itemsize != len(data):
        raise refused("an array of NumPy of other bytes than its own")
    made.__setstate__(state)


def make_array_from_buffer(data: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray[Any, Any]:
    """An array as protocol 5 writes it."""
    if type(data) not in (bytes, bytearray):
        raise refused("an array of NumPy of something else than bytes")
    made = np.empty(0, np.int8)
    set_numpy_array(made, (1, shape, dtype, order == "F", bytes(data)))
    return made


def _plain(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.hasobject or dtype.kind not in "?biufcSU" or dtype.names is not None:
        raise refused(f"elements of NumPy's type {dtype}")
    return dtype
