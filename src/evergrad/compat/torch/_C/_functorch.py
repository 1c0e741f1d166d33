"""Questions about ``vmap`` levels: transforms here are interpreters over a graph, without any."""

from __future__ import annotations

from typing import Any


def is_batchedtensor(tensor: Any) -> bool:
    return False


def is_legacy_batchedtensor(tensor: Any) -> bool:
    return False


def is_gradtrackingtensor(tensor: Any) -> bool:
    return False


def is_functorch_wrapped_tensor(tensor: Any) -> bool:
    return False


def get_unwrapped(tensor: Any) -> Any:
    return tensor


def maybe_get_level(tensor: Any) -> int:
    return -1


def peek_interpreter_stack() -> None:
    """No interpreter is active."""
