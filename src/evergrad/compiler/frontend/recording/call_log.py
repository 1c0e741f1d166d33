"""Impure calls that a program makes before and after its run, and the log of those that were made
for the present call of a compiled function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from evergrad.compiler.frontend.arguments.signature import key_of
from evergrad.compiler.frontend.recording.append_recorder import APPENDABLE
from evergrad.compiler.frontend.recording.formatted_texts import FormattedText
from evergrad.compiler.frontend.recording.fresh_yields import is_fresh
from evergrad.compiler.frontend.state.places import is_plain
from evergrad.compiler.frontend.state.slots import slot_key
from evergrad.core.python_numbers import (
    Expression,
    PythonNumber,
    constant,
    value_of,
)
from evergrad.core.tensor import Tensor
from evergrad.core.tree import TreeSpec, tree_flatten

if TYPE_CHECKING:
    from evergrad.core.types import Kwargs, Leaves, Tree


class Performed:
    """An impure call that was made, with what it returned or raised."""

    __slots__ = ("error", "function", "is_fresh", "value")

    def __init__(self, function: Any) -> None:
        self.function = function
        self.value: Any = None
        # Whether an iterator has made the container that was returned.
        self.is_fresh: bool = False
        self.error: Exception | None = None


class CallLog:
    """The impure calls that were made for the present call of a compiled function, in order. A
    program or a session that is tried after another one gets their results again."""

    def __init__(self) -> None:
        self.made: list[Performed] = []
        self.position = 0
        self.is_closed: bool = False

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Make no further calls meanwhile."""
        self.rewind()
        self.is_closed = True
        try:
            yield
        finally:
            self.is_closed = False

    def has_more(self) -> bool:
        """Whether there are calls that were made before."""
        return self.position < len(self.made)

    def containers(self) -> Leaves:
        """The containers of which methods were called."""
        found = [getattr(made.function, "__self__", None) for made in self.made]
        return [held for held in found if type(held) in APPENDABLE]

    def rewind(self) -> None:
        self.position = 0

    def clear(self) -> None:
        self.made, self.position = [], 0

    def perform(self, function: Any, args: Sequence[object], kwargs: Kwargs) -> Performed:
        """Make the next call, unless it was made already."""
        if self.is_closed and self.position >= len(self.made):
            return _NOT_MADE
        if self.position < len(self.made):
            found = self.made[self.position]
            if found.function == function:
                self.position += 1
                return found
            del self.made[self.position :]  # another thread has changed what the function reads
        found = Performed(function)
        outer, self.made, self.position = (self.made, self.position), [], 0
        try:
            found.value = function(*args, **kwargs)
            found.is_fresh = is_fresh(getattr(function, "__self__", None), found.value)
        except Exception as error:
            found.error = error
        finally:
            self.made, self.position = outer
        self.made.append(found)
        self.position += 1
        return found


_NOT_MADE = Performed(None)
_NOT_MADE.error = RuntimeError("no further calls are made")


class RecordedCall:
    """A call that a program makes before its run. ``leaves`` are what it returned for this run."""

    def __init__(
        self, log: CallLog, function: Any, arguments: Arguments, performed: Performed, fresh: bool,
        convert: Callable[[object], object] | None = None,
    ) -> None:  # fmt: skip
        """A list that is returned is ``fresh`` if nothing else refers to it; ``convert`` is applied
        to what is returned."""
        self.log = log
        self.function = function
        self.name = getattr(function, "__qualname__", "")
        self.arguments = arguments
        self.raises: type[Exception] | type[None] = type(performed.error)
        self.is_flattened = fresh
        self.needs_fresh: bool = (
            fresh and type(performed.value) in (list, dict) and performed.is_fresh
        )
        self.convert = convert
        self.leaves, self.spec = self.flattened(performed.value)
        self.keys = [call_key(leaf) for leaf in self.leaves]
        # What the keys identify by id.
        self.kept = [leaf for leaf in self.leaves if is_object(leaf)]

    def flattened(self, value: object) -> tuple[Leaves, TreeSpec]:
        if self.convert is not None:
            value = self.convert(value)
        if self.is_flattened and type(value) in (list, dict):
            return tree_flatten(value, lambda node: node is not value)
        return tree_flatten(value, lambda node: type(node) is not tuple)

    def replay(self) -> bool:
        """Make the call; whether it returns what the program is for."""
        performed = self.log.perform(self.function, *self.arguments.values())
        if type(performed.error) is not self.raises:
            return False
        if self.needs_fresh and not performed.is_fresh:
            return False
        leaves, spec = self.flattened(performed.value)
        if spec != self.spec or len(leaves) != len(self.keys):
            return False
        for leaf, key in zip(leaves, self.keys):  # noqa: B905 - equal lengths
            if leaf.__class__ is not key and call_key(leaf) != key:
                return False
        self.leaves = leaves
        return True

    @property
    def tensors(self) -> list[Tensor]:
        return [leaf for leaf in self.leaves if isinstance(leaf, Tensor)]

    def release(self) -> None:
        """Drop what the call returned."""
        self.leaves = []


class Arguments:
    """The arguments of a recorded call: values, or expressions of run-time numbers."""

    def __init__(self, args: Sequence[object], kwargs: Kwargs) -> None:
        numbers = [v for v in (*args, *kwargs.values()) if type(v) is PythonNumber]
        self.args = [value_of(v) for v in args]
        self.kwargs = {key: value_of(v) for key, v in kwargs.items()}
        self.expressions: list[Expression] = []
        self.of_kwargs: dict[str, Expression] = {}
        for number in numbers:  # of a call before the run
            number.table.needed |= number.sources
        if numbers:
            self.expressions = [_expression(v) for v in args]
            self.of_kwargs = {key: _expression(v) for key, v in kwargs.items()}

    def values(self) -> tuple[Leaves, dict[str, Any]]:
        if not self.expressions and not self.of_kwargs:
            return self.args, self.kwargs
        kwargs = {key: expression() for key, expression in self.of_kwargs.items()}
        return [expression() for expression in self.expressions], kwargs


def _expression(value: object) -> Expression:
    return value.expression if type(value) is PythonNumber else constant(value)


def call_key(leaf: object) -> object:
    """What a program depends on of a value that a call returns: of a number its type, of a tensor
    type, strides and history, of plain values all, of others the identity."""
    if leaf.__class__ in (int, float):
        return leaf.__class__
    if isinstance(leaf, Tensor):
        return slot_key(leaf)
    return key_of(leaf) if is_plain(leaf) else (None, id(leaf))


def is_object(leaf: object) -> bool:
    return not isinstance(leaf, Tensor) and not is_plain(leaf)


class RecordedOutput:
    """A call that a program makes after its run. ``given`` are its arguments in the traced call,
    which are results of the program."""

    def __init__(
        self, function: Any, args: Sequence[object], kwargs: Kwargs,
        is_ready: Callable[[], bool],
    ) -> None:  # fmt: skip
        self.function = function
        self.name = function.__name__
        # Whether the traced call has not made it, since it needs what the program computes.
        self.is_deferred = False
        # The texts among the arguments, of which the numbers are given.
        self.texts: dict[int, FormattedText] = {
            n: arg for n, arg in enumerate(args) if type(arg) is FormattedText
        }
        self.given: Tree = ([_numbers_of(arg) for arg in args], dict(kwargs))
        # Whether the call would run no code of the user's, and not fail.
        self.is_ready = is_ready

    def perform(self, given: Tree) -> None:
        args, kwargs = given
        if self.texts:
            texts = self.texts
            args = [texts[n].text(arg) if n in texts else arg for n, arg in enumerate(args)]
        self.function(*args, **kwargs)

    def release(self) -> None:
        """Drop the arguments of the traced call."""
        self.given = None
        for text in self.texts.values():
            text.numbers = []


def _numbers_of(arg: object) -> object:
    return tuple(arg.numbers) if type(arg) is FormattedText else arg
