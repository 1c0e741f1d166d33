"""PyTorch's tracer of Python code: not used. Its settings are remembered and change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import config


def reset() -> None:
    """Nothing to forget."""


def disable(fn: Any = None, recursive: bool = True, **kwargs: Any) -> Any:
    """The function itself, also as a decorator with arguments."""
    return fn if fn is not None else _unchanged


def allow_in_graph(fn: Any) -> Any:
    """The function itself."""
    return fn


def graph_break(msg: str = "") -> None:
    """Nothing to break."""


def is_compiling() -> bool:
    return False


def _unchanged(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


__all__ = ["allow_in_graph", "config", "disable", "graph_break", "is_compiling", "reset"]
