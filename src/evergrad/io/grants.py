"""What users allow files to name beyond the list that is always allowed.

``add_safe_globals`` grants for the whole process; ``safe_globals`` for a ``with`` block, seen by no
other thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar, Token
from typing import Any

Grant = Callable[..., Any] | tuple[Callable[..., Any], str]

_for_all: list[Grant] = []
_here: ContextVar[tuple[Grant, ...]] = ContextVar("safe_globals", default=())


def _path_of(grant: Grant) -> str:
    """The name under which files refer to something granted."""
    if not isinstance(grant, tuple):
        if not hasattr(grant, "__qualname__"):
            raise TypeError(
                f"safe_globals takes classes and functions, not {grant!r}; as in "
                "safe_globals([MyClass])"
            )
        return f"{grant.__module__}.{grant.__qualname__}"
    if len(grant) != 2:
        raise ValueError(
            "Expected tuple of length 2 (global, str of callable full path), but got tuple of "
            f"length: {len(grant)}"
        )
    if type(grant[1]) is not str:
        raise TypeError(
            "Expected second item in tuple to be str of callable full path, but got: "
            f"{type(grant[1])}"
        )
    return grant[1]


def _checked(grants: Iterable[Grant]) -> list[Grant]:
    listed = list(grants)
    for grant in listed:
        _path_of(grant)
    return listed


def add_safe_globals(safe_globals: list[Grant]) -> None:
    """Let files name these classes and functions: make objects of them, set state, call them.

    An item is a class or function, or a pair of it and the full path under which files name it.
    """
    _for_all.extend(grant for grant in _checked(safe_globals) if grant not in _for_all)


def get_safe_globals() -> list[Grant]:
    """Everything granted at the moment."""
    return list(dict.fromkeys([*_for_all, *_here.get()]))


def clear_safe_globals() -> None:
    """Take back everything that ``add_safe_globals`` granted."""
    _for_all.clear()


class safe_globals:  # noqa: N801 - PyTorch's spelling
    """``with safe_globals([MyClass]):`` lets files name these classes and functions."""

    def __init__(self, safe_globals: list[Grant]) -> None:
        self.safe_globals = _checked(safe_globals)
        self._tokens: list[Token[tuple[Grant, ...]]] = []

    def __enter__(self) -> None:
        self._tokens.append(_here.set((*_here.get(), *self.safe_globals)))

    def __exit__(self, *exception: Any) -> None:
        _here.reset(self._tokens.pop())


def granted() -> dict[str, Any]:
    """What is granted at the moment, by the paths files use."""
    return {_path_of(g): g[0] if isinstance(g, tuple) else g for g in get_safe_globals()}
