"""Stand-ins for containers that a function changes: lists, deques and sets.

A list of losses that grows at every call is no guard of a program that never reads it: what is
appended is an output. While such a call is traced, the place of the container holds an
:class:`AppendRecorder`. What is read of the container (its length, a member, a member that is
popped) is an impure call that the program repeats before its run (:mod:`.recorded_calls`). Where
all members are read, they are inputs, the length is guarded on, and the members afterwards are
outputs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from evergrad.core.python_numbers import PythonNumber

if TYPE_CHECKING:
    from evergrad.compiler.frontend.recording.recorded_calls import CallRecorder
    from evergrad.core.types import Index, Leaves

APPENDABLE = (list, deque, set)


class AppendRecorder:
    """Replaces a list, a deque or a set while tracing. ``pending`` is what was appended, and
    ``content`` are all members once these are read; ``is_read`` says that the container itself is
    used, which is then no part of a program."""

    __slots__ = ("__weakref__", "calls", "content", "held", "is_read", "known", "pending")

    def __init__(self, held: Any, calls: CallRecorder | None = None) -> None:
        self.held = held
        self.calls: CallRecorder | None = calls
        self.pending: Leaves = []
        self.content: Any = None
        self.is_read = False
        # The members of the container that were read, by index.
        self.known: dict[int, Any] = {}

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self.held)  # for isinstance() in the traced function

    # -- appending --------------------------------------------------------------------------------

    def append(self, value: Any) -> None:
        if self.content is not None:
            self.content.append(value)
        elif self.is_read or type(self.held) is set:
            self.container().append(value)
        else:
            self.pending.append(value)

    def add(self, value: Any) -> None:
        if self.is_read or type(self.held) is not set:
            self.container().add(value)
        else:
            hash(value)
            self.pending.append(value)

    def extend(self, values: Any) -> None:
        if self.is_read or self.content is not None or type(self.held) is set:
            self.members().extend(values)
        else:
            self.pending += list(self.members() if values is self else values)

    # -- reading ----------------------------------------------------------------------------------

    @property
    def records(self) -> bool:
        """Whether reads are recorded, or were made before for this call."""
        if self.calls is None or self.is_read or not self.calls.is_recording():
            return False
        return self.calls.refusal is None or self.calls.log.has_more()

    @property
    def is_bounded(self) -> bool:
        return type(self.held) is deque and self.held.maxlen is not None

    def call(self, function: Any, *args: Any) -> Any:
        """An operation of the container, recorded."""
        assert self.calls is not None
        return self.calls.call(function, args, {})

    def held_length(self) -> Any:
        return self.call(self.held.__len__)

    def length(self) -> Any:
        """The number of members, a run-time number where that is recorded."""
        if self.content is not None:
            return len(self.content)
        if not self.records or type(self.held) is set or self.is_bounded:
            return len(self.members())
        return self.held_length() + len(self.pending)

    def __len__(self) -> int:
        length = self.length()
        return int(length.read() if type(length) is PythonNumber else length)

    def __bool__(self) -> bool:
        return bool(self.pending) or bool(self.length())

    def __getitem__(self, index: Index) -> Any:
        if type(index) is PythonNumber:
            index = index.read()
        if type(index) is not int or not self.can_read_one():
            return self.members()[index]
        if index < 0 and -index <= len(self.pending):
            return self.pending[index]
        if index < 0:
            return self.member(index + len(self.pending))
        if self.held_length() > index:
            return self.member(index)
        return self.members()[index]

    def member(self, index: int) -> Any:
        """A member of the container itself."""
        if index not in self.known:
            self.known[index] = self.call(self.held.__getitem__, index)
        return self.known[index]

    def pop(self, *index: Any) -> Any:
        if not self.can_read_one() or len(index) > 1 or type(index[0] if index else 0) is not int:
            return self.members().pop(*index)
        self.known = {}
        if index in ((), (-1,)):
            return self.pending.pop() if self.pending else self.call(self.held.pop)
        if index[0] >= 0 and self.held_length() > index[0]:
            return self.call(self.held.pop, *index)
        return self.members().pop(*index)

    def popleft(self) -> object:
        if type(self.held) is deque and self.can_read_one() and self.held_length() > 0:
            self.known = {}
            return self.call(self.held.popleft)
        return self.members().popleft()

    def __contains__(self, value: object) -> bool:
        if type(self.held) is set and self.records and is_hashable(value):
            return value in self.pending or bool(self.call(self.held.__contains__, value))
        return value in self.members()

    def can_read_one(self) -> bool:
        """Whether single members are read: the others need not be the same."""
        is_whole = self.content is not None or type(self.held) is set
        return self.records and not is_whole and not self.is_bounded

    def members(self) -> Any:
        """All members, to be read and changed: for a program as many as now."""
        if self.content is None and self.records and type(self.held) is not set:
            assert self.calls is not None
            self.known = {}
            length = self.held_length()
            if type(length) is PythonNumber:
                length.read()
            found = self.calls.call(self.held.copy, (), {}, convert=tuple)
            if self.calls.refusal is None or self.calls.log.has_more():
                pending, self.pending = self.pending, []
                self.content = list(found)
                if type(self.held) is deque:
                    self.content = deque(found, self.held.maxlen)
                self.content.extend(pending)
        return self.container() if self.content is None else self.content

    def container(self) -> Any:
        """The container itself, which is read."""
        if self.content is not None:
            return self.content
        self.is_read = True
        return self.flush()

    def flush(self) -> object:
        """Let the container have its members; returns it."""
        if self.content is not None:
            set_members(self.held, list(self.content))
            self.content, self.is_read = None, True
        pending, self.pending, self.known = self.pending, [], {}
        append_all(self.held, pending)
        return self.held

    def __getattr__(self, name: str) -> Any:
        return getattr(self.members(), name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.container().__reduce_ex__(protocol)


def is_hashable(value: object) -> bool:
    if type(value) is PythonNumber:
        return False
    return isinstance(value, (str, int, float, tuple, type(None)))


def append_all(container: Any, values: list[object]) -> None:
    if type(container) is set:
        container.update(values)
    else:
        container.extend(values)


def set_members(container: Any, values: list[object]) -> None:
    container.clear()
    append_all(container, values)


def length_of(value: Any) -> object:
    """``len()``, of a recorder as a run-time number."""
    return value.length() if type(value) is AppendRecorder else len(value)


def _attach_methods() -> None:
    for name in (
        "iter", "setitem", "delitem", "eq", "ne", "lt", "le", "gt", "ge", "hash", "repr", "str",
        "format", "add", "radd", "mul", "rmul", "reversed", "or", "ror", "and", "rand", "sub",
        "rsub", "xor", "rxor",
    ):  # fmt: skip
        setattr(AppendRecorder, f"__{name}__", _reading(f"__{name}__"))
    for name in ("imul", "ior", "iand", "isub", "ixor"):
        setattr(AppendRecorder, f"__{name}__", _in_place(f"__{name}__"))
    AppendRecorder.__iadd__ = _extended  # type: ignore[attr-defined]


def _reading(name: str) -> Callable[..., object]:
    def method(self: AppendRecorder, *args: Any) -> object:
        held = self.members()
        if name == "__hash__":
            return hash(held)
        found = getattr(held, name, None)
        others = [a.members() if type(a) is AppendRecorder else a for a in args]
        return NotImplemented if found is None else found(*others)

    return method


def _in_place(name: str) -> Callable[..., object]:
    def method(self: AppendRecorder, other: Any) -> object:
        found = getattr(self.members(), name, None)
        result = NotImplemented if found is None else found(other)
        return result if result is NotImplemented else self

    return method


def _extended(self: AppendRecorder, other: object) -> object:
    if type(self.held) is set:
        return NotImplemented
    self.extend(other)
    return self


_attach_methods()
