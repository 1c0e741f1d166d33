"""The arguments of a call: their leaves, and the signature that selects a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.compiler.frontend.varying_numbers import Replaced, VaryingNumbers
from evergrad.core import dtypes
from evergrad.core.python_numbers import PythonNumber
from evergrad.core.records import flatten_records
from evergrad.core.state import STATE, State
from evergrad.core.storage import NO_ARRAY
from evergrad.core.tensor import Tensor

if TYPE_CHECKING:
    from evergrad.compiler.frontend.session import Session


class PythonCall:
    """The arguments of one call: leaves, structure, and the signature."""

    def __init__(
        self, function: Callable[..., Any], args: Any, kwargs: Any, varying: VaryingNumbers
    ) -> None:
        self.function = function
        self.varying = varying
        self.args = args
        self.kwargs = kwargs
        self.leaves, self.spec = flatten_records((args, kwargs))
        self.tensors = [leaf for leaf in self.leaves if isinstance(leaf, Tensor)]
        # The numbers that are inputs of a program.
        self.number_positions = varying.positions(self.spec, self.leaves)
        self.numbers: list[Any] = [self.leaves[position] for position in self.number_positions]
        self.is_dense = all(t._value is not NO_ARRAY for t in self.tensors)
        self.leaf_keys: tuple[Any, ...] = ()
        self.aliases: Any = None
        self.key: Any = None
        if self.is_dense:
            self.leaf_keys = self._leaf_keys()
            self.aliases = aliases_of(self.tensors)
            modes = modes_of(STATE.get()), dtypes.get_default_dtype()
            self.key = self.spec, self.leaf_keys, self.aliases, *modes
        # As in the signature: another thread may resize a tensor meanwhile.
        keys = zip(self.leaves, self.leaf_keys, strict=self.is_dense)
        self.types = [key[0] for leaf, key in keys if isinstance(leaf, Tensor)]

    def _leaf_keys(self) -> tuple[Any, ...]:
        keys = [key_of(leaf) for leaf in self.leaves]
        for position in self.number_positions:
            keys[position] = type(self.leaves[position])
        return tuple(keys)

    def on_session(self, session: Session) -> Any:
        """Call the function; the numbers that are inputs are those of the session."""
        session.argument_storages = {id(t._storage) for t in self.tensors}
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


def address_of(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def modes_of(state: State) -> Any:
    """The modes that are part of a signature."""
    return state.grad, None if state.autocast is None else state.autocast.dtype


def key_of(leaf: Any) -> Any:
    """The static part of a leaf: type and strides of a tensor, and its gradient's type where it
    requires one; of other leaves their type and value, or identity."""
    if isinstance(leaf, Tensor):
        value = leaf._value
        strides = None if value.flags.c_contiguous else value.strides
        if not leaf.requires_grad:
            return leaf._type, strides
        return leaf._type, strides, leaf.is_leaf, None if leaf._grad is None else leaf._grad._type
    if isinstance(leaf, float):
        return type(leaf), leaf.hex()  # the sign of zero is a difference
    if isinstance(leaf, (np.generic, complex)):
        return type(leaf), repr(leaf)
    try:
        hash(leaf)
    except TypeError:
        return type(leaf), Identity(leaf)
    return type(leaf), leaf


class Identity:
    """An object that is not hashable, compared by identity."""

    __slots__ = ("held",)

    def __init__(self, held: Any) -> None:
        self.held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self.held is other.held

    def __hash__(self) -> int:
        return id(self.held)


def aliases_of(tensors: Sequence[Tensor]) -> Any:
    """For each tensor the first one on the same storage, the first one at the same address of it,
    and the first one that is the same object; ``None`` if all storages differ."""
    storages = [id(tensor._storage) for tensor in tensors]
    if len(set(storages)) == len(storages):
        return None
    places = [(id(tensor._storage), address_of(tensor._value)) for tensor in tensors]
    handles = [id(tensor) for tensor in tensors]
    kinds: tuple[list[Any], ...] = (storages, places, handles)
    return tuple([kind.index(member) for kind in kinds for member in kind])
