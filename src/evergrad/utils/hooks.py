"""Handles of hooks, under the path PyTorch's programs import them from."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from evergrad.core.node import RemovableHandle

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction


def unserializable_hook(f: Callable[..., object]) -> AnyFunction:
    """Mark a hook as one that need not be pickled."""
    f.__torch_unserializable__ = True  # type: ignore[attr-defined]
    return f


def warn_if_has_hooks(tensor: object) -> None:
    """Hooks of tensors are not saved."""


__all__ = ["RemovableHandle", "unserializable_hook", "warn_if_has_hooks"]
