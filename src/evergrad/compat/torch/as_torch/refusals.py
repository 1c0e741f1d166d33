"""Stand-ins for names that packages import but that have no meaning here.

A class can be used in ``isinstance`` and as an annotation, and refuses to be made. A function
refuses to be called. An enumeration has its members. :mod:`.refused_names` lists them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn

from .private_names import HOMES, RENAMED
from .refused_names import NAMES


@cache
def _table() -> dict[str, dict[str, tuple[str, tuple[str, ...]]]]:
    """{module: {name: (kind, members)}}"""
    modules: dict[str, dict[str, tuple[str, tuple[str, ...]]]] = {}
    entries: dict[str, tuple[str, tuple[str, ...]]] = {}
    words: list[str] = []

    def enter() -> None:
        kind, *names = words or ["none"]
        if kind == "enum":
            entries[names[0]] = (kind, tuple(names[1:]))
        else:
            entries.update(dict.fromkeys(names, (kind, ())))
        words.clear()

    for line in NAMES.splitlines():
        if not line.startswith("    "):  # a continued list is indented further
            enter()
        if line.startswith("  "):
            words.extend(line.split())
        else:
            entries = modules.setdefault(line, {})
    enter()
    return modules


# Modules of torchvision that have no counterpart: every name in them is a class that refuses.
_OPEN = ("torchvision.io", "torchvision.models", "torchvision.ops", "torchvision.tv_tensors")


def _is_open(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in _OPEN)


def _refuse(path: str) -> NoReturn:
    raise NotImplementedError(
        f"evergrad has the name {path} so that packages can be imported, and nothing behind it"
    )


def _refusing_class(module: str, name: str) -> type:
    def refuse(cls: type, *args: object, **kwargs: object) -> NoReturn:
        _refuse(f"{module}.{name}")

    return type(name, (), {"__module__": module, "__new__": refuse, "__doc__": "Refuses."})


def _refusing_function(module: str, name: str) -> Callable[..., Any]:
    if name.startswith("is_"):  # a question: nothing of it is there
        return lambda *args, **kwargs: False

    def refuse(*args: object, **kwargs: object) -> NoReturn:
        _refuse(f"{module}.{name}")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__module__ = module
    return refuse


_CLASS: tuple[str, tuple[str, ...]] = ("class", ())
_made: dict[tuple[str, str], Any] = {}


def find(module: str, name: str) -> Any:
    """What a name means that evergrad has elsewhere, or a stand-in; KeyError if there is none."""
    home = HOMES.get(f"{module}.{name}")
    if home is not None:
        place, _, attribute = home.partition(":")
        return getattr(import_module(place), attribute)
    if _is_open(module) and not name.startswith("__"):
        kind, members = _CLASS
    else:
        kind, members = _table()[module][name]
    if (module, name) not in _made:
        if kind == "class":
            _made[module, name] = _refusing_class(module, name)
        elif kind == "enum":
            _made[module, name] = enum.Enum(name, members, module=module)
        else:
            _made[module, name] = _refusing_function(module, name)
    return _made[module, name]


def is_module(name: str) -> bool:
    """Whether the tables have a module of this name, or one below it."""
    return (
        _is_open(name)
        or name in RENAMED
        or name in _table()
        or any(path.startswith(f"{name}.") for path in (*_table(), *HOMES))
    )


def empty_module(name: str) -> ModuleType:
    """A module that has nothing but what the table says."""
    module = ModuleType(name, "Names that refuse when they are used.")
    module.__dict__["__all__"] = list(_table().get(name, {}))
    return module
