"""Guards on Python state: the globals, cells, defaults and attributes that a traced function reads.

These values decide what Python does, so a program must not outlive them. The bytecode of the
function, and of the functions it refers to, is scanned for reads by name
(:mod:`.frontend.bytecode_reads`). While all slots on the path to a value hold the same objects
nothing has changed; otherwise the values are compared.

Computed attributes (properties, ``__getattr__``) are not evaluated, and code of the engine or the
standard library is not scanned.
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

# A slot that holds a value: a mapping or a list and a key, a function and an attribute, or a cell
# and None. A value that is passed in directly has the holder None.
Slot = tuple[Any, Any]
# Attributes and items from a root to a value.
Path = tuple[tuple[str, Any], ...]

_PLAIN = (int, float, complex, str, bytes, bool, type(None))
_NOT_USERS = frozenset({"evergrad", "numpy"})
_TABLES = ("_parameters", "_buffers", "_modules")
# Standard library modules whose classes are plain records.
_RECORDS = ("types", "argparse")
# Longer containers are compared by identity only.
_LONGEST = 1000


def same(now: Any, then: Any) -> bool:
    """Whether two values are interchangeable: the same object, or equal plain values."""
    if now is then:
        return True
    return type(now) is type(then) and is_plain(then) and bool(now == then)


def is_plain(value: Any) -> bool:
    """Whether a value is a number, a string, or a tuple of such."""
    if isinstance(value, tuple):
        return all(map(is_plain, value))
    return isinstance(value, _PLAIN)


class PythonGuard:
    """A guard on the value at the end of a path, and on its members if it is a container."""

    def __init__(self, name: str, root: Slot, path: Path) -> None:
        self.name = name
        self.root = root
        self.path = path
        self.value = _end(root, path)
        self.members = _members(self.value)

    def holds(self) -> bool:
        now = _end(self.root, self.path)
        if not same(now, self.value):
            return False
        members = _members(now)
        return len(members) == len(self.members) and all(map(same, members, self.members))


class PythonGuards:
    """The guards on what a function and the functions it refers to read, with the values before the
    trace."""

    def __init__(
        self, function: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> None:
        self.guards: list[PythonGuard] = []
        self.seen: set[Any] = set()
        if isinstance(function, MethodType):
            function, args = function.__func__, (function.__self__, *args)
        self.visit_function(function, args, kwargs)
        for value in (function, *args):
            self.visit(value)

    def visit_modules(self, modules: Iterable[Any]) -> None:
        """Scan the ``forward`` methods of modules."""
        for module in modules:
            self.visit_function(type(module).forward, (module,))

    def refuse_mutations(self) -> None:
        """Raise if the function itself has mutated a number or string that it reads; drop the
        guards on anything else that it has mutated."""
        kept = []
        for found in self.guards:
            if found.holds():
                kept.append(found)
            elif is_plain(found.value):
                raise TraceError(
                    f"{found.name} is read and changed inside a compiled function; that happens "
                    "only while tracing, and the program would keep the traced value.\n"
                    "  fix: change it outside of the function, or keep it in a tensor."
                )
        self.guards = kept

    # -- scanning -------------------------------------------------------------------------------

    def visit(self, value: Any) -> None:
        """Scan a callable value and what it contains."""
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
        """Scan a function, some of whose arguments are known."""
        if not isinstance(function, FunctionType) or not _is_users_function(function):
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
        root = _root(read, function, arguments)
        if root is None:
            return
        value = _end(root, read.path)
        if value is MISSING or isinstance(value, ModuleType):
            return
        self.add(f"{read} in {function.__qualname__}()", root, read.path)
        owner = _owner_of_method(root, read.path)
        if owner is None:
            self.visit(value)
        else:
            self.visit_method(owner, read.path[-1][1])

    def visit_method(self, owner: Any, name: str) -> None:
        """Scan a method of an object's class."""
        method = inspect.getattr_static(type(owner), name, None)
        if isinstance(method, (staticmethod, classmethod)):
            self.visit_function(method.__func__)
        else:
            self.visit_function(method.fget if isinstance(method, property) else method, (owner,))

    def add(self, name: str, root: Slot, path: Path = ()) -> None:
        self.guards.append(PythonGuard(name, root, path))

    # -- slots ----------------------------------------------------------------------------------

    def slots(self) -> list[Slot]:
        """All slots on the paths to the values, without duplicates."""
        found: dict[tuple[int, Any], Slot] = {}
        for entry in self.guards:
            followed = _follow(entry.root, entry.path)
            for holder, key in (*(slot for slot, _ in followed), *_shadowing(followed, entry.path)):
                if holder is not None:
                    found.setdefault((id(holder), key), (holder, key))
        return list(found.values())

    def collections(self) -> list[Collection[Any]]:
        """The containers among the guarded values."""
        held = {id(entry.value): entry.value for entry in self.guards}
        return [collection for value in held.values() for collection in _collections(value)]


class SlotGuards:
    """Identity guards on slots: cells, entries of mappings, and others, with their content."""

    def __init__(self, slots: Iterable[Slot]) -> None:
        self.cells: list[tuple[CellType, Any]] = []
        self.entries: list[tuple[Callable[..., Any], Any, Any]] = []
        self.others: list[tuple[Any, Any, Any]] = []
        for holder, key in slots:
            if key is None:
                self.cells.append((holder, holder.cell_contents))
            elif isinstance(holder, (dict, MappingProxyType)):
                self.entries.append((holder.get, key, holder.get(key, MISSING)))
            else:
                self.others.append((holder, key, _content(holder, key)))

    def hold(self) -> bool:
        """Whether all slots hold the same objects as when this was made."""
        try:
            for cell, then in self.cells:
                if cell.cell_contents is not then:
                    return False
            for get, key, then in self.entries:
                if get(key, MISSING) is not then:
                    return False
            for holder, key, then in self.others:
                if _content(holder, key) is not then:
                    return False
        except (LookupError, ValueError):  # a slot no longer exists
            return False
        return True


# -- paths --------------------------------------------------------------------------------------


def _root(read: Read, function: FunctionType, arguments: Mapping[str, Any]) -> Slot | None:
    """The slot of a read's root."""
    if read.root == "global":
        return (function.__globals__, read.name) if read.name in function.__globals__ else None
    if read.root == "argument":
        return (None, arguments[read.name]) if read.name in arguments else None
    names = function.__code__.co_freevars
    if read.name not in names or function.__closure__ is None:
        return None
    return function.__closure__[names.index(read.name)], None


def _follow(root: Slot, path: Path) -> list[tuple[Slot, Any]]:
    """The slots from the root along the path, with their content, as far as they resolve."""
    holder, key = root
    if holder is None:
        found: list[tuple[Slot, Any]] = [((None, None), key)]
    else:
        try:
            found = [(root, _content(holder, key))]
        except (LookupError, ValueError):
            return []
    for kind, name in path:
        value = found[-1][1]
        held_by = _holder(value, name) if kind == "attribute" else _container(value, name)
        if held_by is None:
            break
        found.append(((held_by, name), held_by[name]))
    return found


def _shadowing(followed: list[tuple[Slot, Any]], path: Path) -> Iterator[Slot]:
    """Instance dictionary slots that could shadow a class attribute on the path."""
    for (_, value), (kind, name) in zip(followed, path, strict=False):
        own = getattr(value, "__dict__", None) if kind == "attribute" else None
        if type(own) is dict and name not in own:
            yield own, name


def _end(root: Slot, path: Path) -> Any:
    """The value at the end of a path."""
    followed = _follow(root, path)
    return followed[-1][1] if followed else MISSING


def _content(holder: Any, key: Any) -> Any:
    if key is None:
        return holder.cell_contents
    return getattr(holder, key) if isinstance(holder, FunctionType) else holder[key]


def _holder(value: Any, name: str) -> Any:
    """The mapping that stores an attribute of an object; ``None`` if it is computed."""
    if isinstance(value, Tensor) or (isinstance(value, ModuleType) and not _is_users_module(value)):
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


def _owner_of_method(root: Slot, path: Path) -> Any:
    """The object whose method is at the end of a path."""
    followed = _follow(root, path)
    if len(followed) != len(path) or not path or path[-1][0] != "attribute":
        return None
    return followed[-1][1]


def _members(value: Any) -> list[Any]:
    """The members of a container or a record."""
    members: list[Any] = []
    for collection in _collections(value):
        members += collection.values() if isinstance(collection, dict) else collection
    return members


def _collections(value: Any) -> list[Collection[Any]]:
    """A container, or a record and its nested records, as lists and dictionaries."""
    if isinstance(value, (list, dict)):
        return [value] if len(value) <= _LONGEST else []
    if not _is_record(value):
        return []
    own = vars(value)
    return [own, *(inner for member in own.values() for inner in _collections(member))]


def _is_record(value: Any) -> bool:
    """Whether an object is a namespace of plain values and other records."""
    kind = type(value).__module__
    if callable(value) or not (_is_users_name(kind) or kind in _RECORDS):
        return False
    own = getattr(value, "__dict__", None)
    return type(own) is dict and all(is_plain(v) or _is_record(v) for v in own.values())


def _has_attributes(value: Any) -> bool:
    """Whether the attributes of an argument may decide what the function does."""
    return not (isinstance(value, (Tensor, list, tuple, dict)) or is_plain(value))


# -- user code ----------------------------------------------------------------------------------


def _is_users_function(function: FunctionType) -> bool:
    return _is_users_name(str(function.__globals__.get("__name__", "")))


def _is_users_module(module: ModuleType) -> bool:
    return _is_users_name(module.__name__)


def _is_users_name(name: str) -> bool:
    root = name.partition(".")[0]
    return root not in _NOT_USERS and root not in sys.stdlib_module_names
