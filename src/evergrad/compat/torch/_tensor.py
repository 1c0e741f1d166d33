"""The tensor class under PyTorch's private path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evergrad.core.tensor import Tensor

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction


def _rebuild_from_type_v2(
    func: AnyFunction, new_type: object, args: Any, state: dict[str, object]
) -> object:
    """A pickled tensor of a subclass, with its attributes."""
    made = func(*args)
    if type(made) is not new_type:
        made = made.as_subclass(new_type)
    if hasattr(made, "__setstate__"):
        made.__setstate__(state)
    elif state:
        made.__dict__.update(state if isinstance(state, dict) else state[0])
    return made


__all__ = ["Tensor"]
