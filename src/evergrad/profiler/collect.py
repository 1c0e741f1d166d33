"""Watching a program run: every op, every backward pass, and ranges the program names.

Ops are seen through Python's own profiling hook, at the call of ``bind``, so that a program that
is not profiled pays nothing. The hook slows a profiled program down; times include that.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from types import FrameType
from typing import TYPE_CHECKING, Any

from evergrad.core.backward import run_backward
from evergrad.core.bind import bind, bind_binary, bind_unary
from evergrad.core.thread_variable import thread_variable
from evergrad.profiler.events import Event

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction

_BIND = bind.__code__
# The same for one and two arguments; they call bind in all but the common case.
_SHORT = (bind_unary.__code__, bind_binary.__code__)
_BACKWARD = run_backward.__code__

_current: ContextVar[Collector | None] = thread_variable("evergrad_profiler", None)


def _is_watched(frame: FrameType) -> bool:
    code = frame.f_code
    if code is _BIND:
        caller = frame.f_back
        return caller is None or caller.f_code not in _SHORT
    return code is _BACKWARD or code in _SHORT


def _arguments(values: dict[str, Any]) -> tuple[object, ...]:
    """The arguments of an op, from the local variables of its binding."""
    if "args" in values:
        return tuple(values["args"])
    return tuple(values[name] for name in ("a", "b") if name in values)


class Collector:
    """Collects the events of the thread that starts it."""

    def __init__(self, with_shapes: bool = False) -> None:
        self.with_shapes = with_shapes
        self.events: list[Event] = []
        self._open: list[Event] = []
        self._former_hook: Any = None
        self._former: Collector | None = None

    def start(self) -> None:
        self._former = _current.get()
        _current.set(self)
        self._former_hook = sys.getprofile()
        sys.setprofile(self._watch)

    def stop(self) -> None:
        sys.setprofile(self._former_hook)
        _current.set(self._former)

    def _watch(self, frame: FrameType, kind: str, _: object) -> None:
        if not _is_watched(frame):
            return
        if kind == "call":
            self._open_call(frame)
        elif kind == "return":
            self.close()

    def _open_call(self, frame: FrameType) -> None:
        if frame.f_code is _BACKWARD:
            self.open("backward")
            return
        values = frame.f_locals
        shapes = _shapes(_arguments(values)) if self.with_shapes else ()
        self.open(values["op"].name, shapes)

    def open(self, name: str, shapes: tuple[object, ...] = ()) -> None:
        self._open.append(Event(name, time.perf_counter_ns(), threading.get_ident(), shapes))

    def close(self) -> None:
        """End the innermost open event; one that was open before the start is not known."""
        if not self._open:
            return
        event = self._open.pop()
        event.end = time.perf_counter_ns()
        if self._open:
            self._open[-1].inner += event.duration
        self.events.append(event)


def _shapes(args: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(tuple(getattr(a, "shape", ())) for a in args)


class record_function:  # noqa: N801 - PyTorch's spelling
    """Name a range of the program: ``with record_function("load"):`` or as a decorator.

    Args:
        name: of the range
        args: accepted

    >>> with eg.profiler.profile() as watched, eg.profiler.record_function("load"):
    ...     pass
    >>> "load" in [event.key for event in watched.key_averages()]
    True
    """

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self.args = args

    def __enter__(self) -> record_function:
        self._collector = _current.get()
        if self._collector is not None:
            self._collector.open(self.name)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._collector is not None:
            self._collector.close()

    def __call__(self, function: Callable[..., object]) -> AnyFunction:
        @functools.wraps(function)
        def within(*args: object, **kwargs: object) -> Any:
            with record_function(self.name, self.args):
                return function(*args, **kwargs)

        return within
