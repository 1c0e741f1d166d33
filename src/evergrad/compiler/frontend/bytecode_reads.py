"""The names that a Python function's bytecode reads: globals, closure cells, and attributes and
items of these and of its arguments."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType
from typing import Any, NamedTuple

_LOADS = {
    "LOAD_GLOBAL": "global",
    "LOAD_NAME": "global",
    "LOAD_DEREF": "cell",
    "LOAD_CLASSDEREF": "cell",
    "LOAD_FROM_DICT_OR_DEREF": "cell",
}
_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD")
_ITEM = ("BINARY_SUBSCR", "BINARY_OP")
_STORES = ("STORE_FAST", "DELETE_FAST")


class Read(NamedTuple):
    """A value that bytecode loads: its root (``global``, ``cell`` or ``argument``) and name, and
    the path of attributes (``.name``) and items (``[key]``) to it."""

    root: str
    name: str
    path: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        steps = [f".{key}" if kind == "attribute" else f"[{key!r}]" for kind, key in self.path]
        return "".join([self.name, *steps])


@lru_cache(maxsize=1024)
def reads_of(code: CodeType) -> tuple[Read, ...]:
    """The reads of a function and of the functions nested in it."""
    found = dict.fromkeys(_reads_of_one(code))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner = reads_of(constant)
            found.update((r, None) for r in inner if r.root == "global" or _is_around(r, code))
    return tuple(found)


def _is_around(read: Read, code: CodeType) -> bool:
    """Whether an inner function reads a cell that its outer function captures as well."""
    return read.root == "cell" and read.name in code.co_freevars


def _reads_of_one(code: CodeType) -> Iterator[Read]:
    arguments = _arguments_of(code)
    read: Read | None = None
    key: list[Any] = []  # a constant that may be a subscript
    for instruction in dis.get_instructions(code):
        name, value = instruction.opname, instruction.argval
        if read is not None and name in _ATTRIBUTE and not key:
            read = read._replace(path=(*read.path, ("attribute", value)))
        elif read is not None and name.startswith("LOAD_CONST") and not key:
            key = [value]
        elif read is not None and key and name in _ITEM and "=" not in instruction.argrepr:
            is_item = name == "BINARY_SUBSCR" or instruction.argrepr == "[]"
            read = read._replace(path=(*read.path, ("item", key[0]))) if is_item else read
            key = []
        else:
            if _is_complete(read):
                yield read  # type: ignore[misc]
            read, key = _root(name, value, arguments), []
    if _is_complete(read):
        yield read  # type: ignore[misc]


def _is_complete(read: Read | None) -> bool:
    return read is not None and (read.root != "argument" or bool(read.path))


def _root(name: str, value: Any, arguments: frozenset[str]) -> Read | None:
    root = _LOADS.get(name)
    if root is not None:
        return Read(root, value)
    if name.startswith("LOAD_FAST"):
        local = value if isinstance(value, str) else value[-1]
        return Read("argument", local) if local in arguments else None
    return None


def _arguments_of(code: CodeType) -> frozenset[str]:
    """The arguments that are never reassigned."""
    count = code.co_argcount + code.co_kwonlyargcount
    stored = {i.argval for i in dis.get_instructions(code) if i.opname in _STORES}
    return frozenset(code.co_varnames[:count]) - stored
