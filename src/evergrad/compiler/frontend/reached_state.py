"""The Python state that a function can read, as it is before a call: what is known of it, and what
has changed afterwards."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from evergrad.compiler.frontend.identity_guards import MISSING
from evergrad.compiler.frontend.places import (
    Slot,
    StateGuard,
    hook_counts,
    is_plain,
    is_watchable,
    plain_numbers,
    random_state,
    read_slot,
    write_slot,
)
from evergrad.core.functionalize import SymbolicNumber
from evergrad.core.records import fields_of, flatten_records
from evergrad.core.tensor import Tensor
from evergrad.core.tree import tree_leaves


class ReachedState:
    """The places that the walk has reached, and what they held before the call."""

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.guards: list[StateGuard] = []
        # Attributes of modules, which count their changes.
        self.module_guards: list[StateGuard] = []
        # Why a call has to be run by Python, if it has.
        self.opaque: str | None = None
        self.seen: dict[int, Any] = {}
        self.arrays: list[np.ndarray[Any, Any]] = []
        self.tensors: list[Tensor] = []
        self.names: set[str] = set()
        # The libraries of which functions or classes are reached.
        self.libraries: set[str] = set()
        # Whether code compares the identity of objects, which may share memory.
        self.compares_identity = False
        # Whether code has a match statement, which looks at the layout of objects.
        self.matches_patterns = False
        self.is_dynamic = False
        self.reads_environment = False
        # Whether a schedule of learning rates is reached.
        self.has_schedule = False
        self._waiting: list[tuple[Any, str]] = []
        # Objects of which mentioned attributes are visited: again whenever there are more names.
        self._owners: list[tuple[Mapping[str, Any], str, Any]] = []
        # Classes that the function may call; others are only those of objects that exist.
        self._called: set[int] = set()
        self._classes: set[int] = set()
        self._noted: set[tuple[int, Any]] = set()
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
        self._builtins: dict[tuple[int, str], tuple[dict[str, Any], bool]] = {}
        # The classes whose attributes are watched, by the id of their mapping.
        self.class_of: dict[int, type] = {}
        self._random = [(r, random_state(r)) for r in (random, np.random)]
        self._environment = dict(os.environ)
        self._filters = warnings.filters, list(warnings.filters)
        self._arguments = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        # The containers among the arguments, which belong to one call.
        self.own: list[StateGuard] = []
        self._hooks: list[Any] = []

    def release(self) -> None:
        """Drop what only the traced call needs: guards keep no argument alive."""
        self.seen, self.own, self._arguments, self._owners = {}, [], [], []
        self.arrays, self._hooks = [], []
        self.replayable, self.number_functions, self._builtins = [], [], {}

    def existed(self, value: Any) -> bool:
        """Whether an object existed before the call."""
        return id(value) in self.seen or any(guard.place is value for guard in self.own)

    def shares_container(self, result: Any) -> bool:
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

    def made_by_the_call(self, result: Any) -> Any:
        """An object among the results that did not exist before the call; ``None`` if there is
        none but tensors, numbers and other values without an identity."""
        for leaf in flatten_records(result)[0]:
            is_value = is_plain(leaf) or isinstance(leaf, (Tensor, SymbolicNumber, type))
            is_value = is_value or (isinstance(leaf, tuple) and all(map(is_plain, leaf)))
            of_engine = type(leaf).__module__.startswith("evergrad.core")
            if not (is_value or of_engine or self.existed(leaf) or callable(leaf)):
                return leaf
        return None

    def changed_hooks(self) -> bool:
        """Whether hooks on tensors were added or removed since the walk."""
        return self._hooks != [hook_counts(t) for t in (*self.tensors, *self._arguments)]

    def overlapping_memory(self, tensors: Iterable[Tensor]) -> bool:
        """Whether two storages among the reachable ones and those of some tensors share memory."""
        found = {id(t._storage): t._storage for t in (*self.tensors, *tensors) if t._storage.shared}
        shared = list(found.values())
        if any(np.may_share_memory(s.value, a) for s in shared for a in self.arrays):
            return True
        return any(
            np.may_share_memory(a.value, b.value)
            for n, a in enumerate(shared) for b in shared[:n]
        )  # fmt: skip

    def changed_environment(self) -> bool:
        return dict(os.environ) != self._environment

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

    def replace_numbers(self) -> None:
        """Put Python floats into changed places that hold numbers of a session."""
        for guard in self.changed():
            if guard.key is MISSING:
                plain_numbers(guard.place)
            else:
                held = read_slot(guard.place, guard.key)
                plain = plain_numbers(held)
                if plain is not held:
                    write_slot(guard.place, guard.key, plain)

    def slots(self) -> list[Slot]:
        """All slots that are watched."""
        return [(guard.place, guard.key) for guard in self.guards if guard.key is not MISSING]

    def collections(self) -> list[Collection[Any]]:
        """The lists and dictionaries that are watched."""
        found: list[Collection[Any]] = []
        for guard in self.guards:
            if guard.key is MISSING and is_watchable(guard.place):
                found.append(guard.place)
                if isinstance(guard.place, dict):
                    found.append(dict.keys(guard.place))
        return found

    def per_call(self) -> Iterator[tuple[Callable[[], Any], Any, str]]:
        """Guards that cannot be checked by identity: (predicate, expected, name)."""
        for guard in self.guards:
            if guard.key is MISSING and not is_watchable(guard.place):
                yield guard.holds, True, guard.name
        if self.reads_environment:
            yield (lambda: dict(os.environ)), dict(os.environ), "the environment variables"
