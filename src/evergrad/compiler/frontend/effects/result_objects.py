"""Results that are more than a tree of new containers: objects, closures and partial functions that
the call makes, containers that are reached twice, and containers that existed before the call.

:class:`ObjectGraph` takes what a call returns and stores apart into leaves (tensors, numbers and
constants), which the program computes, and nodes, of which each run makes new objects with the same
references between them. An object that existed before the call is itself: a constant that is
guarded on by identity, or the one at the same place among the arguments.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Sequence
from types import (
    BuiltinFunctionType,
    CellType,
    FunctionType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import TYPE_CHECKING, Any

from evergrad.compiler.frontend.guards.identity_guards import MISSING
from evergrad.compiler.frontend.recording.append_recorder import AppendRecorder
from evergrad.compiler.frontend.session import NotWholeError
from evergrad.compiler.frontend.state.code_reads import is_users_module
from evergrad.compiler.frontend.state.places import is_plain
from evergrad.compiler.frontend.state.python_state import PythonState, slots_of_class
from evergrad.core.deferred_arrays import DeferredArray
from evergrad.core.functionalize import SymbolicNumber
from evergrad.core.python_numbers import DeferredNumber, PythonNumber
from evergrad.core.tensor import Tensor

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction, Leaves

_LEAVES = (Tensor, PythonNumber, SymbolicNumber, DeferredNumber, DeferredArray)
_SEQUENCES = (list, deque, set)
_MAPPINGS = (dict, OrderedDict, defaultdict, Counter)
_CONSTANTS = (type, ModuleType, BuiltinFunctionType)
# Bases of the user's classes that keep nothing in their instances.
_STATELESS = frozenset({"builtins.object", "abc.ABC", "typing.Generic", "typing.Protocol"})


class _Node:
    """An object of the graph: what makes it empty, its parts by their node, and what puts these
    into it. Without ``fill``, ``make`` takes the parts; without parts, the leaves and arguments of
    the run."""

    __slots__ = ("fill", "key", "make", "parts")

    def __init__(
        self, key: object, make: AnyFunction, parts: Sequence[int] | None = None,
        fill: Callable[[Any, Leaves], None] | None = None,
    ) -> None:  # fmt: skip
        """``key`` is equal for nodes that make the same."""
        self.key = key
        self.make = make
        self.parts = parts
        self.fill = fill


class ObjectGraph:
    """The objects of what a call returns and stores; ``leaves`` are what the program computes."""

    def __init__(self, result: object, state: PythonState, replaced: Collection[int] = ()) -> None:
        """``replaced`` are the containers (by id) that places held before the call, and do not any
        more."""
        self.state = state
        self.replaced = replaced
        self.leaves: Leaves = []
        self.nodes: list[_Node] = []
        self.needs_arguments: bool = False
        # The containers that the call has made, by id.
        self.made: dict[int, Any] = {}
        self._known: dict[int, int] = {}
        self._kept: Leaves = []
        # Where they were before the call, as they are when a program builds its results.
        self._paths = state.argument_paths
        self._in_progress: set[int] = set()
        self.root: int = self.add(result)
        del self.state, self._paths, self._known, self._kept

    # -- taking apart -----------------------------------------------------------------------------

    def add(self, value: object) -> int:
        is_number = isinstance(value, Tensor) or type(value) in _LEAVES
        if is_number or (is_plain(value) and not isinstance(value, tuple)):
            return self.leaf(value)
        if value is MISSING:
            return self.constant(value)
        if type(value) is AppendRecorder:
            return self.constant(value.held)
        if id(value) in self._known:
            return self._known[id(value)]
        if id(value) in self._in_progress:
            raise self.refusal(value)
        self._kept.append(value)
        path = self._paths.get(id(value))
        if path is not None:
            self.needs_arguments = True
            return self.enter(value, _Node(("argument", path), functools.partial(object_at, path)))
        if self.is_constant(value):
            return self.constant(value)
        if id(value) in self.replaced or self.state.existed(value):
            raise NotWholeError("an object that existed before the call is returned")
        return self.add_made(value)

    def leaf(self, value: object) -> int:
        index = len(self.leaves)
        self.leaves.append(value)
        self.nodes.append(_Node("leaf", functools.partial(_leaf, index)))
        return len(self.nodes) - 1

    def enter(self, value: object, node: _Node) -> int:
        self.nodes.append(node)
        self._known[id(value)] = len(self.nodes) - 1
        return len(self.nodes) - 1

    def constant(self, value: object) -> int:
        return self.enter(value, _Node(("constant", id(value)), functools.partial(_value, value)))

    def is_constant(self, value: object) -> bool:
        """Whether an object existed before the call, and is the same at each call."""
        state = self.state
        is_own = type(value) is Tensor or type(value).__module__.startswith("evergrad.core")
        if isinstance(value, _CONSTANTS) or is_own:
            return not isinstance(value, type) or state.knows_class(value)
        if id(value) in self.replaced or id(value) in state.weakly_held:
            return False
        if isinstance(value, FunctionType) and not is_users_module(value.__module__ or ""):
            table = getattr(sys.modules.get(value.__module__), "__dict__", {})
            return table.get(value.__name__) is value
        if isinstance(value, CellType):
            return state.knows_place(value)
        return state.seen.get(id(value)) is value

    def add_made(self, value: Any) -> int:
        """An object that the call has made."""
        kind: Any = type(value)
        empty: AnyFunction
        if kind in _SEQUENCES or kind in _MAPPINGS:
            self.made[id(value)] = value
        if kind in _SEQUENCES:
            empty = functools.partial(deque, maxlen=value.maxlen) if kind is deque else kind
            shape = (kind, getattr(value, "maxlen", None), len(value))
            return self.filled(value, shape, empty, list(value), _fill_sequence)
        if kind in _MAPPINGS:
            empty = kind
            if kind is defaultdict:
                if not (value.default_factory is None or isinstance(value.default_factory, type)):
                    raise self.refusal(value)
                empty = functools.partial(defaultdict, value.default_factory)
            parts = [part for pair in value.items() for part in pair]
            return self.filled(value, (kind, len(value)), empty, parts, _fill_mapping)
        if isinstance(value, tuple):
            return self.assembled(value, kind, functools.partial(_tuple, kind), list(value))
        if kind is frozenset:
            return self.assembled(value, kind, lambda *parts: frozenset(parts), list(value))
        if kind is functools.partial and not vars(value):
            parts = [value.func, *value.args, *value.keywords.values()]
            names = tuple(value.keywords)
            return self.assembled(value, names, functools.partial(_partial, names), parts)
        if kind is MethodType:
            return self.assembled(value, kind, MethodType, [value.__func__, value.__self__])
        if kind is CellType:
            held = [] if _is_empty(value) else [value.cell_contents]
            return self.filled(value, (kind, len(held)), CellType, held, _fill_cell)
        if kind is FunctionType:
            return self.add_function(value)
        if kind is SimpleNamespace or self.is_plain_object(kind):
            return self.add_object(value)
        raise self.refusal(value)

    def filled(
        self, value: object, key: object, make: Callable[..., object], parts: Sequence[object],
        fill: Callable[[object, list[object]], None],
    ) -> int:  # fmt: skip
        """An object that is made empty, so that its parts may refer to it."""
        node = _Node(key, make, None, fill)
        index = self.enter(value, node)
        node.parts = [self.add(part) for part in parts]
        return index

    def assembled(
        self, value: object, key: object, make: Callable[..., object], parts: Sequence[object]
    ) -> int:
        """An object that is made of its parts."""
        self._in_progress.add(id(value))
        found = [self.add(part) for part in parts]
        self._in_progress.discard(id(value))
        return self.enter(value, _Node((type(value), key), make, found))

    def add_function(self, value: Any) -> int:
        """A function that the call has made: with its cells, defaults and attributes."""
        cells = value.__closure__ or ()
        parts = [value.__defaults__, value.__kwdefaults__, dict(vars(value)), *cells]
        names = (value.__name__, value.__qualname__, value.__module__, value.__doc__)
        make = functools.partial(_function, value.__code__, value.__globals__, names)
        return self.assembled(value, value.__code__, make, parts)

    def is_plain_object(self, kind: type) -> bool:
        """Whether the instances of a class of the user's are their attributes, and nothing else."""
        if not self.state.knows_class(kind) or hasattr(kind, "__del__"):
            return False
        names = [f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__]
        return all(
            name in _STATELESS or is_users_module(base.__module__)
            for name, base in zip(names, kind.__mro__, strict=True)
        )

    def add_object(self, value: object) -> int:
        kind = type(value)
        own = getattr(value, "__dict__", {})
        slots = [s for base in kind.__mro__ for s in slots_of_class(base) if hasattr(value, s)]
        names = (*own, *slots)
        parts = [*own.values(), *(getattr(value, slot) for slot in slots)]
        count = len(own)
        fill = functools.partial(_fill_object, names, count)
        return self.filled(value, (kind, names), functools.partial(_new, kind), parts, fill)

    def refusal(self, value: object) -> NotWholeError:
        return NotWholeError(f"a {type(value).__name__} that the function makes is returned")

    # -- putting together -------------------------------------------------------------------------

    def build(self, leaves: Sequence[object], given: object) -> object:
        """The objects of a run, from its leaves and arguments."""
        made: dict[int, Any] = {}

        def built(index: int) -> object:
            if index in made:
                return made[index]
            node = self.nodes[index]
            if node.parts is None:
                made[index] = value = node.make(leaves, given)
            elif node.fill is None:
                made[index] = value = node.make(*[built(part) for part in node.parts])
            else:
                made[index] = value = node.make()
                node.fill(value, [built(part) for part in node.parts])
            return value

        return built(self.root)

    def same(self, other: object) -> bool:
        """Whether another graph makes the same objects of its leaves."""
        if not isinstance(other, ObjectGraph) or len(other.nodes) != len(self.nodes):
            return False
        pairs = zip(self.nodes, other.nodes, strict=True)
        return all(a.key == b.key and a.parts == b.parts for a, b in pairs)


def _leaf(index: int, leaves: Sequence[object] = (), given: object = None) -> object:
    return leaves[index]


def _value(value: object, *others: object) -> Any:
    return value


def object_at(path: Sequence[tuple[Any, Any]], leaves: Any, given: object) -> object:
    """The object at a place among arguments."""
    for read, key in path:
        given = read(given, key)
    return given


def _tuple(kind: Any, *parts: object) -> Any:
    return tuple.__new__(kind, parts)


def _partial(names: Sequence[str], function: Any, *parts: object) -> object:
    count = len(parts) - len(names)
    named = dict(zip(names, parts[count:], strict=True))
    return functools.partial(function, *parts[:count], **named)


def _function(
    code: Any, table: Any, names: Any, defaults: Any, kwdefaults: Any, own: Any, *cells: Any
) -> Any:
    made = FunctionType(code, table, names[0], defaults, cells or None)
    made.__kwdefaults__ = kwdefaults
    _, made.__qualname__, made.__module__, made.__doc__ = names
    vars(made).update(own)
    return made


def _new(kind: Any) -> object:
    return kind() if kind is SimpleNamespace else object.__new__(kind)


def _fill_sequence(value: Any, parts: list[object]) -> None:
    if type(value) is set:
        value.update(parts)
    else:
        value.extend(parts)


def _fill_mapping(value: Any, parts: list[object]) -> None:
    for key, held in zip(parts[::2], parts[1::2], strict=True):
        value[key] = held


def _fill_cell(value: Any, parts: list[object]) -> None:
    for part in parts:
        value.cell_contents = part


def _fill_object(names: Sequence[str], count: int, value: object, parts: list[object]) -> None:
    if count:
        vars(value).update(zip(names[:count], parts[:count], strict=True))
    for name, part in zip(names[count:], parts[count:], strict=True):
        object.__setattr__(value, name, part)


def _is_empty(cell: CellType) -> bool:
    try:
        return cell.cell_contents is MISSING
    except ValueError:
        return True
