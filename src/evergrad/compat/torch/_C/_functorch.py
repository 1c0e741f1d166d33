"""Questions about ``vmap`` levels: transforms here are interpreters over a graph, without any."""

from __future__ import annotations

from typing import Any


def is_batchedtensor(tensor: object) -> bool:
    return False


def is_legacy_batchedtensor(tensor: object) -> bool:
    return False


def is_gradtrackingtensor(tensor: object) -> bool:
    return False


def is_functorch_wrapped_tensor(tensor: object) -> bool:
    return False


def get_unwrapped(tensor: object) -> Any:
    return tensor


def maybe_get_level(tensor: object) -> int:
    return -1


def peek_interpreter_stack() -> None:
    """No interpreter is active."""
