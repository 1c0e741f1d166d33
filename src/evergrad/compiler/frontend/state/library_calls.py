"""Code of installed libraries that a compiled function runs.

A step that only names a class of a large library (``isinstance(x, torch.Tensor)``) reaches much of
that library. Functions of installed distributions are therefore not walked unless a session has run
them: :class:`LibraryCalls` observes which of the deferred ones run. A session that runs one is no
program; the walk of the next one includes everything that has run.
"""

from __future__ import annotations

import functools
import os
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType
from typing import TYPE_CHECKING, Any

from evergrad.compiler.frontend.state.code_reads import is_users_module
from evergrad.compiler.frontend.state.profile_hook import profile_hook

if TYPE_CHECKING:
    from evergrad.compiler.frontend.session import Session
    from evergrad.compiler.frontend.state.python_state import PythonState

# The identity of a function: of one of Python its code.
LibraryFunction = CodeType | BuiltinFunctionType
NOTHING_RAN: frozenset[LibraryFunction] = frozenset()


@functools.cache
def _site_directories() -> tuple[str, ...]:
    """The directories that distributions are installed into, with a separator at the end."""
    paths = sysconfig.get_paths()
    found = {paths["purelib"], paths["platlib"], *site.getsitepackages()}
    if site.ENABLE_USER_SITE:
        found.add(site.getusersitepackages())
    return tuple(os.path.join(path, "") for path in found)


def is_installed(module: object) -> bool:
    """Whether a module, by its name, belongs to an installed distribution that is neither the
    engine nor one of its dependencies."""
    root = str(module).partition(".")[0]
    if not is_users_module(root):
        return False
    held = vars(sys.modules[root]) if root in sys.modules else {}
    file = held.get("__file__")
    if file is None:  # a namespace package
        return any(str(path).startswith(_site_directories()) for path in held.get("__path__", ()))
    return str(file).startswith(_site_directories())


class LibraryCalls:
    """What the sessions of a function have run of installed libraries."""

    def __init__(self) -> None:
        self.ran: set[LibraryFunction] = set()

    def run(
        self, on_session: Callable[[Session], Any], session: Session, state: PythonState
    ) -> Any:
        """Run the function in a session. What it runs of the functions that the walk has deferred
        makes the session no program."""
        if not state.deferred or state.opaque is not None:
            return on_session(session)
        with self.observe(state.deferred) as found:
            result = on_session(session)
        if found:
            name = min(state.deferred[function] for function in found)
            session.once = f"{name}() of an installed library runs for the first time"
            session.is_passing = True
        return result

    def is_new(self, state: PythonState) -> bool:
        """Whether a session has run what its walk had deferred."""
        return not self.ran.isdisjoint(state.deferred)

    @contextmanager
    def observe(self, deferred: Mapping[LibraryFunction, str]) -> Iterator[set[LibraryFunction]]:
        """Observe what this thread runs; yields the set of deferred functions that have run, which
        is complete at the end."""
        found: set[LibraryFunction] = set()
        codes: set[CodeType] = set()
        builtins = {id(held): held for held in deferred if isinstance(held, BuiltinFunctionType)}

        def hook(frame: FrameType, event: str, argument: object) -> None:
            if event == "call":
                codes.add(frame.f_code)
            elif event == "c_call" and id(argument) in builtins:
                found.add(builtins[id(argument)])

        try:
            with profile_hook(hook):
                yield found
        finally:
            found |= deferred.keys() & codes
            directories = _site_directories() if found else ()
            self.ran |= found
            self.ran |= {code for code in codes if code.co_filename.startswith(directories)}


def function_of(held: object) -> FunctionType | None:
    """The function behind a member of a class."""
    kind = type(held)
    if kind in (staticmethod, classmethod):
        held = held.__func__  # type: ignore[attr-defined]
    elif kind is property:
        held = held.fget  # type: ignore[attr-defined]
    return held if isinstance(held, FunctionType) else None


def code_of(function: object) -> frozenset[LibraryFunction]:
    """The code of a function or method of Python."""
    held = getattr(function, "__func__", function)
    return frozenset({held.__code__}) if isinstance(held, FunctionType) else NOTHING_RAN
