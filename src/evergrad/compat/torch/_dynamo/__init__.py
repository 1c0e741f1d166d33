"""PyTorch's tracer of Python code: not used. Its settings are remembered and change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evergrad.nn.compiled import OptimizedModule

from . import config


def reset() -> None:
    """Nothing to forget."""


def disable(fn: object = None, recursive: bool = True, **kwargs: object) -> Any:
    """The function itself, also as a decorator with arguments."""
    return fn if fn is not None else _unchanged


def allow_in_graph(fn: object) -> Any:
    """The function itself."""
    return fn


def graph_break(msg: str = "") -> None:
    """Nothing to break."""


def mark_dynamic(t: object, index: object, **bounds: object) -> None:
    """Shapes always vary: kernels are keyed by structure."""


maybe_mark_dynamic = mark_unbacked = mark_dynamic


def mark_static(t: object, index: object = None) -> None:
    """As :func:`mark_dynamic`."""


def mark_static_address(t: object, guard: bool = False) -> None:
    """Memory may move: programs take addresses at every call."""


def assume_constant_result(fn: object) -> Any:
    """The function itself."""
    return fn


def is_dynamo_supported() -> bool:
    return False


def list_backends(exclude_tags: object = ()) -> list[str]:
    return ["evergrad"]


def is_compiling() -> bool:
    return False


def _unchanged(function: Callable[..., object]) -> Callable[..., object]:
    return function


__all__ = [
    "OptimizedModule", "allow_in_graph", "assume_constant_result", "config", "disable",
    "graph_break", "is_compiling",
    "is_dynamo_supported", "list_backends", "mark_dynamic", "mark_static",
    "mark_static_address", "maybe_mark_dynamic", "reset",
]  # fmt: skip
