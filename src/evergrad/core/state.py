"""The modes of the running code: grad mode, trace, autocast, saved-tensor hooks.

Owns one context variable. A thread starts with the defaults (gradients on, no trace), an asyncio
task with a copy of its parent's; nothing set here is visible to another thread.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, TypeVar

from evergrad.core.thread_variable import thread_variable

if TYPE_CHECKING:
    from evergrad.core.autocast import Autocast
    from evergrad.core.backward import BackwardPass
    from evergrad.core.prepared import Recorder
    from evergrad.core.row_facts import Operator
    from evergrad.core.trace import Trace

F = TypeVar("F", bound=Callable[..., Any])
Hooks = tuple[Callable[[Any], Any], Callable[[Any], Any]]
# Called with a row or an eager composite, its arguments, and a function without arguments that
# evaluates and records it; gives its result.
Interceptor = Callable[["Operator", tuple[Any, ...], Callable[[], Any]], Any]


class State:
    """One immutable setting of the modes; changing a mode makes a new one.

    ``grad`` says whether nodes are recorded; ``no_grad`` that the user switched that off, also for
    the later runs of what is traced now. ``backward_pass`` is the running one. ``interceptor``
    is called for every op that eager code evaluates (views apart). ``recorder`` notes every op for
    a prepared function. ``intercepted`` says that a trace, autocast, an interceptor or a recorder
    is active, so that ops are not simply evaluated.
    """

    __slots__ = (
        "anomaly",
        "autocast",
        "backward_pass",
        "grad",
        "inference",
        "intercepted",
        "interceptor",
        "no_grad",
        "recorder",
        "saved_hooks",
        "trace",
    )  # fmt: skip

    def __init__(self) -> None:
        self.grad: bool = True
        self.no_grad: bool = False
        self.inference: bool = False
        self.trace: Trace | None = None
        self.backward_pass: BackwardPass | None = None
        self.saved_hooks: Hooks | None = None
        self.anomaly: bool = False
        self.autocast: Autocast | None = None
        self.interceptor: Interceptor | None = None
        self.recorder: Recorder | None = None
        self.intercepted: bool = False

    def replace(self, **changes: object) -> State:
        new = State.__new__(State)
        new.grad = self.grad
        new.no_grad = self.no_grad
        new.inference = self.inference
        new.trace = self.trace
        new.backward_pass = self.backward_pass
        new.saved_hooks = self.saved_hooks
        new.anomaly = self.anomaly
        new.autocast = self.autocast
        new.interceptor = self.interceptor
        new.recorder = self.recorder
        for name, value in changes.items():
            setattr(new, name, value)
        new.intercepted = (
            new.trace is not None
            or new.autocast is not None
            or new.interceptor is not None
            or new.recorder is not None
        )
        return new


STATE: ContextVar[State] = thread_variable("evergrad_state", State())


class using:  # noqa: N801 - used like a function
    """``with using(grad=False): ...``: sets modes inside, restores the former ones after."""

    __slots__ = ("changes", "token")

    def __init__(self, **changes: object) -> None:
        self.changes: dict[str, object] = changes

    def __enter__(self) -> None:
        self.token: Token[State] = STATE.set(STATE.get().replace(**self.changes))

    def __exit__(self, *exc: object) -> None:
        STATE.reset(self.token)


def set_mode(**changes: object) -> None:
    """Change modes for the rest of this context."""
    STATE.set(STATE.get().replace(**changes))


def without_autocast(function: F) -> F:
    """Run a function without autocast: the casts are equations of its graph already."""

    @functools.wraps(function)
    def within(*args: object, **kwargs: object) -> object:
        if STATE.get().autocast is None:
            return function(*args, **kwargs)
        with using(autocast=None):
            return function(*args, **kwargs)

    return within  # type: ignore[return-value]
