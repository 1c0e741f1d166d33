"""Stand-ins for names that packages import but that have no meaning here.

A class can be used in ``isinstance`` and as an annotation, and refuses to be made. A function
refuses to be called. An enumeration has its members. :mod:`.refused_names` lists those that are
there for ``hasattr`` as well; all others that PyTorch has are in ``names_of_torch.txt``, and can be
imported or read by their path: a package that asks whether they are there hears that they are not.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.resources import files
from types import ModuleType
from typing import NoReturn

import evergrad
from evergrad.utils import _pytree

from .private_names import HOMES, RENAMED
from .refused_names import NAMES

Entry = tuple[str, tuple[str, ...]]  # the kind, an enumeration's members or the package
Table = dict[str, dict[str, Entry]]


@cache
def _table() -> Table:
    return _read(NAMES)


@cache
def _index() -> Table:
    """What PyTorch has beyond :mod:`.refused_names` and evergrad."""
    return _read(files(__package__).joinpath("names_of_torch.txt").read_text())


def _read(text: str) -> Table:
    """{module: {name: (kind, members)}}"""
    modules: Table = {}
    entries: dict[str, Entry] = {}
    words: list[str] = []

    def enter() -> None:
        kind, *names = words or ["none"]
        if kind == "enum":
            entries[names[0]] = (kind, tuple(names[1:]))
        elif kind == "from":
            entries.update(dict.fromkeys(names[1:], (kind, (names[0],))))
        else:
            entries.update(dict.fromkeys(names, (kind, ())))
        words.clear()

    for line in text.splitlines():
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


def _error_class(module: str, name: str) -> type:
    """An error that nothing raises can be named in ``except``."""
    return type(name, (Exception,), {"__module__": module})


def _refusing_function(module: str, name: str) -> Callable[..., object]:
    if name.startswith("is_"):  # a question: nothing of it is there
        return lambda *args, **kwargs: False

    def refuse(*args: object, **kwargs: object) -> NoReturn:
        _refuse(f"{module}.{name}")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__module__ = module
    return refuse


_CLASS: Entry = ("class", ())
# torchvision's pretrained weights are members that signatures have as defaults.
_WEIGHTS: Entry = (
    "enum",
    ("DEFAULT", "IMAGENET1K_V1", "IMAGENET1K_V2", "COCO_V1", "COCO_WITH_VOC_LABELS_V1",
     "KINETICS400_V1"),
)  # fmt: skip
_MAKERS: dict[str, Callable[[str, str], object]] = {
    "class": _refusing_class, "error": _error_class, "def": _refusing_function,
}  # fmt: skip
_made: dict[tuple[str, str], object] = {}


def find(module: str, name: str) -> object:
    """What a name means that evergrad has elsewhere, or a stand-in; KeyError if there is none."""
    home = HOMES.get(f"{module}.{name}")
    if home is not None:
        place, _, attribute = home.partition(":")
        return getattr(import_module(place), attribute)
    kind, members = _index().get(module, {}).get(name, _CLASS)
    if kind == "from":  # evergrad has it under the name of a package that re-exports it
        return getattr(import_module(members[0].replace("torch", "evergrad", 1)), name)
    if not _is_open(module) or name.startswith("__"):
        return _stand_in(module, name, _table()[module][name])
    return _stand_in(module, name, _WEIGHTS if name.endswith("_Weights") else _CLASS)


def find_in_index(module: str, name: str) -> object:
    """A stand-in for any name that PyTorch has; KeyError if it has none. The private modules
    and those of ``torch.distributed`` import from each other and from ``torch``, so they answer
    for the names of all."""
    own = _index()[module]
    if name not in own and _is_inner(module):
        for public in (evergrad, _pytree):
            if hasattr(public, name):
                return getattr(public, name)
        return _stand_in(module, name, _private_names()[name])
    return _stand_in(module, name, own[name])


def _is_inner(module: str) -> bool:
    return "._" in module or module.startswith("torch.distributed.")


@cache
def _private_names() -> dict[str, Entry]:
    """The names of the inner modules, wherever they are defined."""
    private = [names for module, names in _index().items() if _is_inner(module)]
    return {name: entry for names in private for name, entry in names.items()}


def _stand_in(module: str, name: str, entry: Entry) -> object:
    kind, members = entry
    if (module, name) not in _made:
        if kind == "enum":
            _made[module, name] = enum.Enum(name, members, module=module)
        else:
            _made[module, name] = _MAKERS[kind](module, name)
    return _made[module, name]


def is_module(name: str) -> bool:
    """Whether the tables have a module of this name, or one below it."""
    return (
        _is_open(name)
        or name in RENAMED
        or name in _table()
        or name in _index()
        or any(path.startswith(f"{name}.") for path in (*_table(), *HOMES))
    )


def empty_module(name: str) -> ModuleType:
    """A module that has nothing but what the table says."""
    module = ModuleType(name, "Names that refuse when they are used.")
    listed = _table().get(name) or _index().get(name, {})
    module.__dict__["__all__"] = list(listed)
    return module
