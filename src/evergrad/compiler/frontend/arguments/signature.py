"""The arguments of a call: their leaves, and the signature that selects a program."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Sequence
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.compiler.frontend.numbers.varying_numbers import Replaced, VaryingNumbers
from evergrad.compiler.frontend.state.code_reads import is_users_module
from evergrad.core import dtypes
from evergrad.core.python_numbers import PythonNumber
from evergrad.core.records import children_with_records, flatten_records
from evergrad.core.state import STATE, State
from evergrad.core.storage import NO_ARRAY
from evergrad.core.tensor import Tensor
from evergrad.core.tree import TreeSpec

if TYPE_CHECKING:
    from evergrad.compiler.frontend.session import Session
    from evergrad.core.types import AnyFunction, Args, Array, Leaves


# Types of which equal objects may differ: ``Decimal("1.0") == Decimal("1.00")``.
_EQUAL_BUT_OTHERS = (range, frozenset, decimal.Decimal, datetime.datetime, datetime.time)
# What bounds of slices may be, if these are compared by value.
_BOUNDS = (int, float, bool, str)


class PythonCall:
    """The arguments of one call: leaves, structure, and the signature."""

    def __init__(
        self, function: AnyFunction, args: Any, kwargs: Any, varying: VaryingNumbers
    ) -> None:
        self.function = function
        self.varying = varying
        self.args = args
        self.kwargs = kwargs
        self.leaves, self.spec = flatten_records((args, kwargs))
        self.tensors: list[Tensor] = [leaf for leaf in self.leaves if isinstance(leaf, Tensor)]
        # The numbers that are inputs of a program.
        self.number_positions: list[int] = varying.positions(self.spec, self.leaves)
        self.numbers: Leaves = [self.leaves[position] for position in self.number_positions]
        # Why there is no signature, if there is none.
        self.refusal: str | None = None
        if any(t._value is NO_ARRAY for t in self.tensors):
            self.refusal = "an argument is sparse or nested"
        elif not _keys_are_values(self.spec):
            self.refusal = "a key of a dictionary compares in its own way"
        self.leaf_keys: tuple[Any, ...] = ()
        self.aliases: Any = None
        # Which containers among the arguments are the same.
        self.containers: Any = None
        self.key: Any = None
        if self.refusal is None:
            self.leaf_keys = self._leaf_keys()
            self.aliases = aliases_of(self.tensors)
            modes = modes_of(STATE.get()), dtypes.get_default_dtype()
            self.containers = container_aliases(args, kwargs)
            keys = kinds_of_keys(self.spec)
            self.key = self.spec, self.leaf_keys, self.aliases, self.containers, keys, *modes
        # As in the signature: another thread may resize a tensor meanwhile.
        pairs = zip(self.leaves, self.leaf_keys, strict=self.refusal is None)
        self.types = [key[0] for leaf, key in pairs if isinstance(leaf, Tensor)]

    def _leaf_keys(self) -> Args:
        keys = [key_of(leaf) for leaf in self.leaves]
        for position in self.number_positions:
            keys[position] = type(self.leaves[position])
        return tuple(keys)

    def on_session(self, session: Session) -> object:
        """Call the function; the numbers that are inputs are those of the session."""
        session.argument_storages = {id(t._storage) for t in self.tensors}
        function = self.function.__func__ if type(self.function) is MethodType else self.function
        if type(function) is FunctionType:
            session.codes = function.__code__, PythonCall.on_session.__code__
        if not self.numbers:
            return self.function(*self.args, **self.kwargs)
        session.expressions.arguments = dict(zip(self.number_positions, self.numbers, strict=True))
        inputs = {
            position: argument_number(session, position) for position in self.number_positions
        }
        replaced = Replaced(inputs)
        args, kwargs = replaced.replace((self.args, self.kwargs), self.spec)
        del inputs, replaced.numbers
        try:
            return self.function(*args, **kwargs)
        finally:
            replaced.restore()


def argument_number(session: Session, position: int) -> PythonNumber:
    """A number among the arguments as one of the session."""
    table = session.expressions
    values, source = table.arguments, (ARGUMENT, position)
    return PythonNumber(
        session, table, values[position], lambda: values[position], frozenset([source])
    )


# The place of numbers that are arguments, with their position.
ARGUMENT = "argument"


def address_of(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def modes_of(state: State) -> Any:
    """The modes that are part of a signature."""
    return state.grad, None if state.autocast is None else state.autocast.dtype


def key_of(leaf: object) -> Any:
    """The static part of a leaf: type and strides of a tensor, its gradient's type where it
    requires one, and its class where that is another; of other leaves their type and value, or
    identity."""
    if isinstance(leaf, Tensor):
        value = leaf._value
        strides = None if value.flags.c_contiguous else value.strides
        kind = () if type(leaf) is Tensor else (type(leaf),)
        if not leaf.requires_grad:
            return leaf._type, strides, *kind
        grad = None if leaf._grad is None else leaf._grad._type
        return leaf._type, strides, leaf.is_leaf, grad, *kind
    if isinstance(leaf, float):
        return type(leaf), leaf.hex()  # the sign of zero is a difference
    if isinstance(leaf, (np.generic, complex)):
        return type(leaf), repr(leaf)
    if not _is_value(leaf):
        return type(leaf), Identity(leaf)
    if type(leaf) is tuple:  # a key of a dictionary
        return tuple, *map(key_of, leaf)
    if type(leaf) is slice:  # hashable from CPython 3.12 on
        bounds = leaf.start, leaf.stop, leaf.step
        if all(bound is None or type(bound) in _BOUNDS for bound in bounds):
            return slice, *map(key_of, bounds)
        return slice, Identity(leaf)
    try:
        hash(leaf)
    except TypeError:
        return type(leaf), Identity(leaf)
    if type(leaf) in _EQUAL_BUT_OTHERS:
        return type(leaf), leaf, repr(leaf)
    return type(leaf), leaf


def _keys_are_values(spec: TreeSpec) -> bool:
    """Whether the keys of dictionaries can be distinguished by comparison."""
    if not spec.children:
        return True
    for key in keys_of(spec):
        if key.__class__ is not str and not _is_value(key):
            return False
    return all(map(_keys_are_values, spec.children))


def keys_of(spec: TreeSpec) -> Leaves:
    """The keys of a dictionary."""
    keys = spec.context
    if type(keys) is tuple and keys and type(keys[-1]) is list:  # of a defaultdict
        keys = keys[-1]
    return keys if type(keys) is list else []


def kinds_of_keys(spec: TreeSpec) -> Args:
    """What equal keys of the dictionaries in arguments may differ in: those of texts nothing."""
    if not spec.children:
        return ()
    own = [key_of(key) for key in keys_of(spec) if key.__class__ is not str]
    return *own, *(kind for child in spec.children for kind in kinds_of_keys(child))


def _is_value(leaf: object) -> bool:
    """Whether an object that equals this one can take its place: none of a class of the user's that
    compares in its own way, or has attributes that no comparison sees."""
    kind = type(leaf)
    if not is_users_module(kind.__module__) or kind.__eq__ is object.__eq__:
        return True
    compares = next(base for base in kind.__mro__ if "__eq__" in vars(base))
    return not is_users_module(compares.__module__) and not getattr(leaf, "__dict__", None)


class Identity:
    """An object that is not hashable, compared by identity."""

    __slots__ = ("held",)

    def __init__(self, held: Any) -> None:
        self.held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self.held is other.held

    def __hash__(self) -> int:
        return id(self.held)


def container_aliases(args: Any, kwargs: Any) -> tuple[int, ...] | None:
    """For each container and record among arguments the first one that is the same object;
    ``None`` if all differ."""
    return same_objects_among(
        [o for given in (*args, *kwargs.values()) for o in containers_in(given)]
    )


def same_objects_among(containers: Sequence[object]) -> tuple[int, ...] | None:
    """For each container the first one that is the same object; ``None`` if all differ."""
    found = [id(held) for held in containers]
    return None if len(set(found)) == len(found) else tuple(map(found.index, found))


def containers_in(tree: object) -> Leaves:
    """The containers and records of a tree, but for tuples."""
    if isinstance(tree, Tensor):
        return []
    children = children_with_records(tree)
    if children is None:
        return []
    below = [held for child in children[1] for held in containers_in(child)]
    return below if isinstance(tree, tuple) else [tree, *below]


def aliases_of(tensors: Sequence[Tensor]) -> object:
    """For each tensor the first one on the same storage, the first one at the same address of it,
    and the first one that is the same object; ``None`` if all storages differ."""
    storages = [id(tensor._storage) for tensor in tensors]
    if len(set(storages)) == len(storages):
        return None
    places = [(id(tensor._storage), address_of(tensor._value)) for tensor in tensors]
    handles = [id(tensor) for tensor in tensors]
    kinds: tuple[Leaves, ...] = (storages, places, handles)
    return tuple([kind.index(member) for kind in kinds for member in kind])
