"""Names of ``torch.compiler`` that programs call around ``compile``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from evergrad.core.state import STATE


def is_compiling() -> bool:
    """Whether a function is being traced to be compiled."""
    return STATE.get().trace is not None


def is_dynamo_compiling() -> bool:
    """Whether a function is being traced to be compiled."""
    return is_compiling()


def is_exporting() -> bool:
    return False


def disable(fn: object = None, recursive: bool = True, *, reason: str | None = None) -> object:
    """The function itself, also as a decorator with arguments."""
    return fn if fn is not None else lambda function: function


def allow_in_graph(fn: object) -> object:
    """The function itself."""
    return fn


def assume_constant_result(fn: object) -> object:
    """The function itself."""
    return fn


def substitute_in_graph(original_fn: object, **options: object) -> object:
    """A decorator that leaves the function as it is."""
    return lambda function: function


def cudagraph_mark_step_begin() -> None:
    """No graphs of a device are recorded."""


def reset() -> None:
    """Programs are kept by their signature; nothing has to be forgotten."""


def list_backends(exclude_tags: object = ()) -> list[str]:
    return ["evergrad"]


@contextmanager
def set_stance(stance: str = "default", **options: object) -> Iterator[None]:
    """A context without effect."""
    yield


def nested_compile_region(fn: object = None) -> object:
    """The function itself."""
    return disable(fn)
