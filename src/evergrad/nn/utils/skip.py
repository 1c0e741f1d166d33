"""Modules made without drawing their starting values."""

from __future__ import annotations

import inspect
from typing import TypeVar

from evergrad.core.rng.default_generator import get_rng_state, set_rng_state
from evergrad.nn.module import Module

M = TypeVar("M", bound=Module)


def skip_init(module_cls: type[M], *args: object, **kwargs: object) -> M:
    """Make a module whose parameters are to be overwritten.

    Unlike PyTorch's, the values are drawn and then left: nothing in the result says which, but the
    state of the random generator is as if they had not been.

    Args:
        module_cls: the class
        args, kwargs: of its constructor

    >>> nn.utils.skip_init(nn.Linear, 2, 3).weight.shape
    evergrad.Size([3, 2])
    """
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    state = get_rng_state()
    try:
        return module_cls(*args, **kwargs)
    finally:
        set_rng_state(state)
