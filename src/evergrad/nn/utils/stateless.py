"""``functional_call`` under the path it first had."""

from __future__ import annotations

from typing import Any

from evergrad.core.types import Kwargs
from evergrad.func import modules


def functional_call(
    module: object, parameters_and_buffers: object, args: object = None,
    kwargs: Kwargs | None = None, *, tie_weights: bool = True, strict: bool = False,
) -> Any:  # fmt: skip
    """Call a module with other parameters and buffers; the module itself stays as it is."""
    return modules.functional_call(
        module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict
    )


__all__ = ["functional_call"]
