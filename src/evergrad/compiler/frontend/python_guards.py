"""What a function finds around it while it is traced, and how to see that it has changed.

Globals, cells, default arguments and attributes of plain objects decide what Python does; a traced
program must not outlive them. The code of the function, and of the functions it finds, is looked
through for what it reads by name (:mod:`.frontend.bytecode_reads`). As long as all places on the
way to these values hold the same objects nothing has changed; otherwise the values are compared.

What an object computes (properties, ``__getattr__``) is not asked for, and what the engine itself
or the standard library reads is none of the user's.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import CellType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

from evergrad.compiler.frontend.bytecode_reads import Read, reads_of
from evergrad.compiler.frontend.identity_guards import MISSING
from evergrad.core.tensor import Tensor
from evergrad.errors import TraceError

# Where something is held: a mapping or a list and a key, a function and an attribute, or a cell and
# None. An object that is just given is held by None.
Place = tuple[Any, Any]
# Attributes and items on the way to a value.
Path = tuple[tuple[str, Any], ...]

_PLAIN = (int, float, complex, str, bytes, bool, type(None))
_NO_USERS = frozenset({"evergrad", "numpy"})
_TABLES = ("_parameters", "_buffers", "_modules")
# Modules of the standard library with classes for plain records.
_RECORDS = ("types", "argparse")
# Longer containers are not looked through, only told from others.
_LONGEST = 1000


def same(now: Any, then: Any) -> bool:
    """Whether one value does for another: the same object, or an equal plain one."""
    if now is then:
        return True
    return type(now) is type(then) and is_plain(then) and bool(now == then)


def is_plain(value: Any) -> bool:
    """Whether a value is a number, a text, or a tuple of such."""
    if isinstance(value, tuple):
        return all(map(is_plain, value))
    return isinstance(value, _PLAIN)


class Found:
    """A value that was found at the end of a path, with what it held if it is a container."""

    def __init__(self, name: str, begin: Place, path: Path) -> None:
        self.name = name
        self.begin = begin
        self.path = path
        self.value = _end(begin, path)
        self.members = _members(self.value)

    def is_same(self) -> bool:
        now = _end(self.begin, self.path)
        if not same(now, self.value):
            return False
        members = _members(now)
        return len(members) == len(self.members) and all(map(same, members, self.members))


class Surroundings:
    """What a function and those that it finds read, as it was before it ran."""

    def __init__(
        self, function: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> None:
        self.found: list[Found] = []
        self.seen: set[Any] = set()
        if isinstance(function, MethodType):
            function, args = function.__func__, (function.__self__, *args)
        self.visit_function(function, args, kwargs)
        for value in (function, *args):
            self.visit(value)

    def visit_modules(self, modules: Iterable[Any]) -> None:
        """Look through what modules do when they are called."""
        for module in modules:
            self.visit_function(type(module).forward, (module,))

    def settle(self) -> None:
        """Raise if the function itself has changed a number or text that it reads; what else it has
        changed is no condition."""
        kept = []
        for found in self.found:
            if found.is_same():
                kept.append(found)
            elif is_plain(found.value):
                raise TraceError(
                    f"{found.name} is read and changed inside a compiled function; that happens "
                    "only while tracing, and the program would keep today's value.\n"
                    "  fix: change it outside of the function, or keep it in a tensor."
                )
        self.found = kept

    # -- looking through ------------------------------------------------------------------------

    def visit(self, value: Any) -> None:
        """Look through what may be called, and what is in it."""
        if isinstance(value, MethodType):
            self.visit_function(value.__func__, (value.__self__,))
        elif isinstance(value, FunctionType):
            self.visit_function(value)
        elif isinstance(value, functools.partial):
            self.visit_function(value.func, value.args, value.keywords)
            for given in (value.func, *value.args, *value.keywords.values()):
                self.visit(given)
        elif isinstance(value, type):
            for member in vars(value).values():
                self.visit_function(getattr(member, "__func__", member))
        elif isinstance(value, (list, tuple, dict)):
            for member in value.values() if isinstance(value, dict) else value:
                if not isinstance(member, (list, tuple, dict)):
                    self.visit(member)
        elif "__wrapped__" in getattr(value, "__dict__", ()):
            self.visit(value.__wrapped__)
        elif "_modules" in getattr(value, "__dict__", ()):
            self.visit_modules(value.modules())
        elif not isinstance(value, (ModuleType, Tensor)):
            self.visit_method(value, "__call__")

    def visit_function(
        self, function: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> None:
        """Look through a function of which some arguments are known."""
        if not isinstance(function, FunctionType) or not _is_users(function):
            return
        given = {**dict(zip(function.__code__.co_varnames, args, strict=False)), **(kwargs or {})}
        arguments = {name: value for name, value in given.items() if _has_attributes(value)}
        key = (id(function), *map(id, arguments.values()))
        if key in self.seen:
            return
        self.seen.add(key)
        self.note_defaults(function)
        for read in reads_of(function.__code__):
            self.note(read, function, arguments)

    def note_defaults(self, function: FunctionType) -> None:
        for name in ("__defaults__", "__kwdefaults__"):
            held = getattr(function, name)
            if held:
                self.add(f"the defaults of {function.__qualname__}()", (function, name))
                for value in held.values() if isinstance(held, dict) else held:
                    self.add(f"a default of {function.__qualname__}()", (None, value))
                    self.visit(value)

    def note(self, read: Read, function: FunctionType, arguments: Mapping[str, Any]) -> None:
        begin = _begin(read, function, arguments)
        if begin is None:
            return
        value = _end(begin, read.path)
        if value is MISSING or isinstance(value, ModuleType):
            return
        self.add(f"{read} in {function.__qualname__}()", begin, read.path)
        owner = _owner_of_method(begin, read.path)
        if owner is None:
            self.visit(value)
        else:
            self.visit_method(owner, read.path[-1][1])

    def visit_method(self, owner: Any, name: str) -> None:
        """Look through what an object has of its class."""
        method = inspect.getattr_static(type(owner), name, None)
        if isinstance(method, (staticmethod, classmethod)):
            self.visit_function(method.__func__)
        else:
            self.visit_function(method.fget if isinstance(method, property) else method, (owner,))

    def add(self, name: str, begin: Place, path: Path = ()) -> None:
        self.found.append(Found(name, begin, path))

    # -- places ---------------------------------------------------------------------------------

    def places(self) -> list[Place]:
        """All places on the way to the values, once each."""
        found: dict[tuple[int, Any], Place] = {}
        for entry in self.found:
            walked = _walk(entry.begin, entry.path)
            for holder, key in (*(place for place, _ in walked), *_nearer(walked, entry.path)):
                if holder is not None:
                    found.setdefault((id(holder), key), (holder, key))
        return list(found.values())

    def collections(self) -> list[Collection[Any]]:
        """The containers among the values."""
        held = {id(entry.value): entry.value for entry in self.found}
        return [collection for value in held.values() for collection in _collections(value)]


class Places:
    """Identity guards on places: cells, entries of mappings, and others, with what they hold."""

    def __init__(self, places: Iterable[Place]) -> None:
        self.cells: list[tuple[CellType, Any]] = []
        self.entries: list[tuple[Callable[..., Any], Any, Any]] = []
        self.others: list[tuple[Any, Any, Any]] = []
        for holder, key in places:
            if key is None:
                self.cells.append((holder, holder.cell_contents))
            elif isinstance(holder, (dict, MappingProxyType)):
                self.entries.append((holder.get, key, holder.get(key, MISSING)))
            else:
                self.others.append((holder, key, _held(holder, key)))

    def are_same(self) -> bool:
        """Whether they hold the same objects as when this was made."""
        try:
            for cell, then in self.cells:
                if cell.cell_contents is not then:
                    return False
            for get, key, then in self.entries:
                if get(key, MISSING) is not then:
                    return False
            for holder, key, then in self.others:
                if _held(holder, key) is not then:
                    return False
        except (LookupError, ValueError):  # one of them is gone
            return False
        return True


# -- paths --------------------------------------------------------------------------------------


def _begin(read: Read, function: FunctionType, arguments: Mapping[str, Any]) -> Place | None:
    """Where a path begins."""
    if read.begin == "global":
        return (function.__globals__, read.name) if read.name in function.__globals__ else None
    if read.begin == "argument":
        return (None, arguments[read.name]) if read.name in arguments else None
    names = function.__code__.co_freevars
    if read.name not in names or function.__closure__ is None:
        return None
    return function.__closure__[names.index(read.name)], None


def _walk(begin: Place, path: Path) -> list[tuple[Place, Any]]:
    """The places from the begin on, with what they hold, as far as they can be followed."""
    holder, key = begin
    if holder is None:
        found: list[tuple[Place, Any]] = [((None, None), key)]
    else:
        try:
            found = [(begin, _held(holder, key))]
        except (LookupError, ValueError):
            return []
    for kind, name in path:
        value = found[-1][1]
        held_by = _holder(value, name) if kind == "attribute" else _container(value, name)
        if held_by is None:
            break
        found.append(((held_by, name), held_by[name]))
    return found


def _nearer(walked: list[tuple[Place, Any]], path: Path) -> Iterator[Place]:
    """Where an object may get an attribute of its own in place of one of its class."""
    for (_, value), (kind, name) in zip(walked, path, strict=False):
        own = getattr(value, "__dict__", None) if kind == "attribute" else None
        if type(own) is dict and name not in own:
            yield own, name


def _end(begin: Place, path: Path) -> Any:
    """The value at the end of a path."""
    walked = _walk(begin, path)
    return walked[-1][1] if walked else MISSING


def _held(holder: Any, key: Any) -> Any:
    if key is None:
        return holder.cell_contents
    return getattr(holder, key) if isinstance(holder, FunctionType) else holder[key]


def _holder(value: Any, name: str) -> Any:
    """The mapping in which an object has an attribute, if it simply holds it."""
    if isinstance(value, Tensor) or (isinstance(value, ModuleType) and not _is_of_users(value)):
        return None
    own = getattr(value, "__dict__", None)
    if own is not None and name in own:
        is_method = isinstance(value, type) and hasattr(type(own[name]), "__get__")
        return None if is_method else own
    if own is not None and "_parameters" in own:
        for table in _TABLES:
            if name in own[table]:
                return own[table]
    for base in type(value).__mro__:
        if name in vars(base):
            held = vars(base)[name]
            return None if hasattr(type(held), "__get__") else vars(base)
    return None


def _container(value: Any, key: Any) -> Any:
    if isinstance(value, dict):
        return value if key in value else None
    if isinstance(value, list) and isinstance(key, int):
        return value if -len(value) <= key < len(value) else None
    return None


def _owner_of_method(begin: Place, path: Path) -> Any:
    """The object whose method a path ends at."""
    walked = _walk(begin, path)
    if len(walked) != len(path) or not path or path[-1][0] != "attribute":
        return None
    return walked[-1][1]


def _members(value: Any) -> list[Any]:
    """What a container or a record holds."""
    members: list[Any] = []
    for collection in _collections(value):
        members += collection.values() if isinstance(collection, dict) else collection
    return members


def _collections(value: Any) -> list[Collection[Any]]:
    """A container or a record as lists, and dictionaries for their values, with the records
    inside."""
    if isinstance(value, (list, dict)):
        return [value] if len(value) <= _LONGEST else []
    if not _is_record(value):
        return []
    own = vars(value)
    return [own, *(inner for member in own.values() for inner in _collections(member))]


def _is_record(value: Any) -> bool:
    """Whether an object just holds plain values and other records under names."""
    kind = type(value).__module__
    if callable(value) or not (_is_name_of_users(kind) or kind in _RECORDS):
        return False
    own = getattr(value, "__dict__", None)
    return type(own) is dict and all(is_plain(v) or _is_record(v) for v in own.values())


def _has_attributes(value: Any) -> bool:
    """Whether an argument is an object that may decide something by what it holds."""
    return not (isinstance(value, (Tensor, list, tuple, dict)) or is_plain(value))


# -- whose code it is ---------------------------------------------------------------------------


def _is_users(function: FunctionType) -> bool:
    return _is_name_of_users(str(function.__globals__.get("__name__", "")))


def _is_of_users(module: ModuleType) -> bool:
    return _is_name_of_users(module.__name__)


def _is_name_of_users(name: str) -> bool:
    root = name.partition(".")[0]
    return root not in _NO_USERS and root not in sys.stdlib_module_names
