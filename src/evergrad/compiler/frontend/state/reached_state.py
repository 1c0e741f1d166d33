"""The Python state that a function can read, as it is before a call: what is known of it, and what
has changed afterwards."""

from __future__ import annotations

import os
import random
import warnings
from abc import get_cache_token
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from types import BuiltinFunctionType, CodeType
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.compiler.frontend.arguments.argument_paths import paths_to
from evergrad.compiler.frontend.guards.identity_guards import MISSING
from evergrad.compiler.frontend.state.code_reads import is_users_module
from evergrad.compiler.frontend.state.library_calls import NOTHING_RAN, LibraryFunction
from evergrad.compiler.frontend.state.places import (
    NO_ORIGINALS,
    Originals,
    Slot,
    StateGuard,
    hook_counts,
    is_plain,
    is_watchable,
    plain_numbers,
    random_state,
    read_slot,
    sets_predicate,
    write_slot,
)
from evergrad.compiler.frontend.state.raw_reads import is_a
from evergrad.compiler.frontend.state.settings_reads import decimal_context, setting
from evergrad.core.functionalize import SymbolicNumber
from evergrad.core.records import fields_of, flatten_records
from evergrad.core.storage import Storage
from evergrad.core.tensor import Tensor, TensorMeta, user_attributes
from evergrad.core.tree import tree_leaves

if TYPE_CHECKING:
    from evergrad.core.types import Array


def is_builtin(value: object) -> bool:
    """Whether a value is a function of Python's or of an extension."""
    return is_a(value, BuiltinFunctionType)


class ReachedState:
    """The places that the walk has reached, and what they held before the call."""

    def __init__(
        self, args: Sequence[Any], kwargs: Mapping[str, Any],
        ran: Set[LibraryFunction] = NOTHING_RAN,
    ) -> None:  # fmt: skip
        # The functions of installed libraries that sessions have run, and those that were reached
        # but not walked, because none has.
        self.ran = ran
        # The code of the functions that were visited.
        self.codes: set[CodeType] = set()
        self.deferred: dict[LibraryFunction, str] = {}
        self.guards: list[StateGuard] = []
        # Attributes of modules, which count their changes, and methods of tensors.
        self.module_guards: list[StateGuard] = [
            StateGuard("a method of Tensor", TensorMeta, "patches", TensorMeta.patches)
        ]
        # Why a call has to be run by Python, if it has.
        self.opaque: str | None = None
        self.seen: dict[int, object] = {}
        self.arrays: list[Array] = []
        self.tensors: list[Tensor] = []
        self.names: set[str] = set()
        # The libraries of which functions or classes are reached.
        self.libraries: set[str] = set()
        # Whether code compares the identity of objects, which may share memory.
        self.compares_identity = False
        # Whether code has a match statement, which looks at the layout of objects.
        self.matches_patterns = False
        # Whether code handles exceptions of classes that it names, which are among these; or any.
        self.handles_named_errors = self.handles_all_errors = False
        self.exceptions: set[type[BaseException]] = set()
        self.is_dynamic = False
        self.reads_environment = False
        # Whether an object is reached that files may be read into.
        self.reads_files = False
        # Whether a schedule of learning rates is reached.
        self.has_schedule = False
        # Whether code sets attributes, and tensors that have none of their own.
        self.stores_attributes = False
        # The names of attributes that an object may have at times.
        self.appearing_names: set[str] = set()
        self._bare_tensors: list[tuple[Tensor, str]] = []
        # Functions that return settings, by name.
        self.settings: dict[str, Callable[[], object]] = {}
        self._waiting: list[tuple[object, str]] = []
        # Objects of which mentioned attributes are visited: again whenever there are more names.
        self._owners: list[tuple[Mapping[str, object], str, object]] = []
        # The number of names, and what else was known, when the owners were visited.
        self._visited: dict[int, tuple[int, int, bool, int]] = {}
        # The classes of modules and optimizers, with the number of names when their methods were
        # watched.
        self._watched_methods: dict[type, int] = {}
        # Whether an abstract base class is reached, which others register with.
        self.reads_registers = False
        # Classes that the function may call; others are only those of objects that exist.
        self._called: set[int] = set()
        self._classes: set[int] = set()
        self._noted: set[tuple[int, object]] = set()
        self.weakly_held: set[int] = set()
        # The slots that the call gives other values, by the id of their place: not guarded on here.
        self.slots_of_effects: set[Slot] = set()
        # Whether a class of the user's has a method that has to return a number of Python.
        self.converts_numbers = False
        # The places of impure functions and objects whose calls a program can repeat.
        self.replayable: list[StateGuard] = []
        # The places of functions of numbers; and tables of globals that have no entry for a
        # built-in function which code looks up, with whether all of it only calls the function.
        self.number_functions: list[StateGuard] = []
        self._builtins: dict[tuple[int, str], tuple[dict[str, object], bool]] = {}
        # The classes whose attributes are watched, by the id of their mapping.
        self.class_of: dict[int, type] = {}
        self._random = [(r, random_state(r)) for r in (random, np.random)]
        self._environment = dict(os.environ)
        self._decimals = decimal_context()
        self._filters = warnings.filters, list(warnings.filters)
        self._arguments = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        self._attributes = [user_attributes(t) for t in self._arguments]
        self.given = args, kwargs
        # The ways to the containers among the arguments, by id, as they are before the call.
        self.argument_paths = dict(paths_to(self.given))
        # The containers among the arguments, which belong to one call.
        self.own: list[StateGuard] = []
        self._hooks: list[object] = []

    def argument_tensors(self) -> list[Tensor]:
        """The tensors among the arguments."""
        return self._arguments

    def release(self) -> None:
        """Drop what only the traced call needs: guards keep no argument alive."""
        self.seen, self.own, self._arguments, self._owners = {}, [], [], []
        self.arrays, self._hooks, self.given, self.argument_paths = [], [], ((), {}), {}
        self._bare_tensors, self._attributes = [], []
        self.replayable, self.number_functions, self._builtins = [], [], {}

    def note_exception(self, value: object) -> None:
        if is_a(value, type) and issubclass(value, BaseException):
            self.exceptions.add(value)

    def handled_errors(self) -> tuple[type[BaseException], ...]:
        """The exceptions that the function may handle, and more."""
        if self.handles_all_errors:
            return (BaseException,)
        return tuple(self.exceptions) if self.handles_named_errors else ()

    def existed(self, value: Any) -> bool:
        """Whether an object existed before the call."""
        return id(value) in self.seen or any(guard.place is value for guard in self.own)

    def shares_container(self, result: object) -> bool:
        """Whether a container among the results existed before the call."""
        fields = fields_of(result)
        if fields is not None:
            return self.existed(result) or any(map(self.shares_container, fields.values()))
        if not isinstance(result, (list, dict, tuple)):
            return False
        if not isinstance(result, tuple) and self.existed(result):
            return True
        members = result.values() if isinstance(result, dict) else result
        return any(map(self.shares_container, members))

    def made_by_the_call(self, result: object) -> object:
        """An object among the results that did not exist before the call; ``None`` if there is
        none but tensors, numbers and other values without an identity."""
        for leaf in flatten_records(result)[0]:
            is_value = is_plain(leaf) or isinstance(leaf, (Tensor, SymbolicNumber, type))
            is_value = is_value or (isinstance(leaf, tuple) and all(map(is_plain, leaf)))
            of_engine = type(leaf).__module__.startswith("evergrad.core")
            is_value = is_value or leaf is MISSING
            if not (is_value or of_engine or self.existed(leaf) or is_builtin(leaf)):
                return leaf
        return None

    def knows_class(self, kind: type) -> bool:
        """Whether a class was not made by the call."""
        return not is_users_module(kind.__module__) or id(kind) in self._classes

    def knows_place(self, place: object) -> bool:
        """Whether a cell was not made by the call."""
        return (id(place), None) in self._noted

    def changed_hooks(self) -> bool:
        """Whether hooks on tensors were added or removed since the walk."""
        now = [hook_counts(t) for t in (*self.tensors, *self._arguments)]
        pairs = zip(now, self._hooks, strict=True)
        # A tensor that becomes a leaf has no hooks yet.
        return any(after != before and (before or any(after)) for after, before in pairs)

    def uses_attributes(self) -> bool:
        """Whether the call has set attributes of tensors among the arguments, or may read some."""
        for tensor, before in zip(self._arguments, self._attributes, strict=True):
            now = user_attributes(tensor)
            if list(now) != list(before) or any(now[key] is not before[key] for key in now):
                return True
            if before and (self.is_dynamic or not self.names.isdisjoint(before)):
                return True
        return False

    def shared_memory(self, tensors: Iterable[Tensor]) -> list[Storage]:
        """The storages that NumPy sees among the reachable ones and those of some tensors."""
        found = {id(t._storage): t._storage for t in (*self.tensors, *tensors) if t._storage.shared}
        return list(found.values())

    def is_seen_by_arrays(self, shared: Sequence[Storage]) -> bool:
        """Whether the function reaches a NumPy array on the memory of a storage."""
        return any(np.may_share_memory(s.value, a) for s in shared for a in self.arrays)

    def changed_environment(self) -> bool:
        return dict(os.environ) != self._environment

    def restore_environment(self) -> None:
        """Let the environment variables be those from before the call."""
        if self.changed_environment():
            os.environ.clear()
            os.environ.update(self._environment)

    def changed_decimals(self) -> bool:
        return decimal_context() != self._decimals

    def changed_filters(self) -> bool:
        held, members = self._filters
        return warnings.filters is not held or list(held) != members

    def note_random_states(self) -> None:
        """Take the states of the sources of random numbers as they are now for known."""
        self._random = [(source, random_state(source)) for source, _ in self._random]

    def drew_random_numbers(self) -> bool:
        """Whether random numbers of Python or NumPy were drawn since the walk."""
        return any(random_state(r) != state for r, state in self._random)

    def changed(self) -> list[StateGuard]:
        """The places that have changed since the walk."""
        watched = (*self.guards, *self.module_guards, *self.own)
        return [guard for guard in watched if not guard.holds()]

    def replace_numbers(self, originals: Originals = NO_ORIGINALS) -> None:
        """Put Python floats into changed places that hold numbers of a session, and ``originals``
        for their copies."""
        for tensor in self._arguments:
            plain_numbers(tensor.__dict__)
        for guard in self.changed():
            if guard.key is MISSING:
                plain_numbers(guard.place, originals=originals)
            else:
                held = read_slot(guard.place, guard.key)
                plain = plain_numbers(held, originals=originals)
                if plain is not held:
                    owner = self.class_of.get(id(guard.place))
                    write_slot(guard.place if owner is None else owner, guard.key, plain)

    def slots(self) -> list[Slot]:
        """All slots that are watched."""
        return [(guard.place, guard.key) for guard in self.guards if guard.key is not MISSING]

    def collections(self) -> list[Collection[object]]:
        """The lists and dictionaries that are watched."""
        return [g.place for g in self.guards if g.key is MISSING and is_watchable(g.place)]

    def per_call(self) -> Iterator[tuple[Callable[[], object], object, str]]:
        """Guards that cannot be checked by identity: (predicate, expected, name)."""
        found = [g for g in self.guards if g.key is MISSING and not is_watchable(g.place)]
        sets = [guard for guard in found if type(guard.place) is set]
        if sets:
            yield sets_predicate(sets), True, sets[0].name
        for guard in found:
            if type(guard.place) is not set:
                yield guard.predicate(), True, guard.name
        if self.reads_registers:
            yield get_cache_token, get_cache_token(), "the registers of abstract base classes"
        if self.reads_environment:
            yield (lambda: dict(os.environ)), dict(os.environ), "the environment variables"
        if "decimal" in self.libraries:
            yield decimal_context, decimal_context(), "the context of decimal"
        for name, function in self.settings.items():
            read = partial(setting, function)
            yield read, read(), f"{name}()"
