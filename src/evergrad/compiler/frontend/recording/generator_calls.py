"""Generators and other iterators that run code of the user's, as impure calls.

What ``next()`` of a generator does is Python's at every call: a program makes it before its run.
That is the same as in between if the generator and the step share nothing that one of them can
change, which is found by reachability from both.
"""

from __future__ import annotations

from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING

from evergrad.compiler.frontend.recording import impure
from evergrad.compiler.frontend.state.places import is_plain
from evergrad.core.dtypes import dtype

if TYPE_CHECKING:
    from evergrad.compiler.frontend.session import Session
    from evergrad.compiler.frontend.state.reached_state import ReachedState

# What both may reach: it holds nothing itself that changes.
_HARMLESS = (type, ModuleType, FunctionType, MethodType, BuiltinFunctionType, dtype)


def conflict(own: ReachedState, other: ReachedState) -> str | None:
    """Why an iterator that reaches ``other`` cannot be resumed before the run of a step that
    reaches ``own``; ``None`` if it can."""
    if other.opaque is not None:
        return f"an iterator is resumed for which {other.opaque}"
    if any(has_output(guard.value) for guard in other.replayable):
        return "an iterator is resumed that has output"
    known = {id(t._storage) for t in (*own.tensors, *own.argument_tensors())}
    if any(id(tensor._storage) in known for tensor in other.tensors):
        return "an iterator is resumed that reaches a tensor of the function"
    for held in other.seen.values():
        if id(held) in own.seen and not isinstance(held, _HARMLESS) and not _is_fixed(held):
            return f"an iterator is resumed that reaches a {type(held).__name__} of the function"
    places = {(id(guard.place), guard.key): guard.value for guard in own.guards}
    for guard in other.guards:
        shared = places.get((id(guard.place), guard.key), dtype)
        if shared is not dtype and not isinstance(shared, _HARMLESS):
            return f"an iterator is resumed that reaches {guard.name}"
    return None


def has_output(value: object) -> bool:
    return impure.is_output(value) or impure.is_stream(value) or impure.is_logger(value)


def _is_fixed(held: object) -> bool:
    if isinstance(held, (tuple, frozenset)):
        return all(isinstance(m, _HARMLESS) or is_plain(m) or _is_fixed(m) for m in held)
    return is_plain(held)


def reaches_captured(session: Session, other: ReachedState) -> bool:
    """Whether an iterator reaches a tensor that the session has captured: it may write to it."""
    captured = {id(tensor._storage) for _, tensor in session.captures}
    return any(id(tensor._storage) in captured for tensor in other.tensors)


def has_drawn(session: Session) -> bool:
    """Whether random numbers were drawn by the session."""
    return any(eqn.op.random for eqn in session.equations)
