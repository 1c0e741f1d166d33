"""Variables of the running code that belong to one thread.

A new thread starts with the defaults, on every interpreter. Free-threaded interpreters (and others
with ``-X thread_inherit_context=1``) start a thread in a copy of its parent's context: there a
value is kept together with the thread that has set it. A context copied by hand, as
``asyncio.to_thread`` does, carries values over elsewhere.
"""

from __future__ import annotations

import sys
import threading
from contextvars import ContextVar, Token
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


class _Thread(threading.local):
    """An identity of the calling thread that no later thread has."""

    def __init__(self) -> None:
        self.identity = object()


_THREAD = _Thread()


class ThreadVariable(Generic[T]):
    """A context variable whose value only the thread that has set it sees."""

    def __init__(self, name: str, default: T) -> None:
        self.default = default
        self.variable: ContextVar[tuple[object, T]] = ContextVar(name, default=(None, default))

    def get(self) -> T:
        owner, value = self.variable.get()
        return value if owner is _THREAD.identity else self.default

    def set(self, value: T) -> Token[Any]:
        return self.variable.set((_THREAD.identity, value))

    def reset(self, token: Token[Any]) -> None:
        self.variable.reset(token)


def thread_variable(name: str, default: T) -> ContextVar[T]:
    """A context variable that new threads do not inherit."""
    if getattr(sys.flags, "thread_inherit_context", False):
        return cast(Any, ThreadVariable(name, default))  # type: ignore[no-any-return]
    return ContextVar(name, default=default)
