"""Wrappers for several devices, of which there is one here: they only pass calls on."""

from __future__ import annotations

from typing import Any

from evergrad.nn.module import Module


class DataParallel(Module):
    """A module under the name ``module``, called as it is."""

    def __init__(
        self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0
    ) -> None:
        super().__init__()
        self.dim = dim
        self.module = module
        self.device_ids: list[Any] = []

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


def data_parallel(
    module: Module, inputs: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:  # fmt: skip
    """Call a module on all devices."""
    given = inputs if isinstance(inputs, tuple) else (inputs,)
    return module(*given, **(module_kwargs or {}))


__all__ = ["DataParallel", "data_parallel"]
