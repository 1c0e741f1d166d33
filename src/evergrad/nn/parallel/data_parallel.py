"""Several devices in one process: there is one, so a batch stays whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from evergrad.nn.module import Module
from evergrad.ops.rows.movement.joining import cat

if TYPE_CHECKING:
    from evergrad.core.types import Leaves

M = TypeVar("M", bound=Module)


class DataParallel(Module):
    """A module under the name ``module``, called as it is.

    Args:
        module: the module
        device_ids, output_device, dim: accepted; PyTorch spreads batches over GPUs by them, here
            one call of the module already uses every core

    >>> model = nn.DataParallel(nn.Linear(2, 3))
    >>> model(eg.ones(4, 2)).shape, list(model.state_dict())
    (evergrad.Size([4, 3]), ['module.weight', 'module.bias'])
    """

    def __init__(
        self, module: Module, device_ids: object = None, output_device: object = None, dim: int = 0
    ) -> None:
        super().__init__()
        self.dim = dim
        self.module = module
        self.device_ids: list[object] = []

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


def data_parallel(
    module: Module, inputs: object, device_ids: object = None, output_device: object = None,
    dim: int = 0, module_kwargs: dict[str, object] | None = None,
) -> Any:  # fmt: skip
    """Call a module on all devices."""
    given = inputs if isinstance(inputs, tuple) else (inputs,)
    return module(*given, **(module_kwargs or {}))


def scatter(inputs: object, target_gpus: Sequence[object], dim: int = 0) -> tuple[Any, ...]:
    """A batch shared out over devices; with one device it is the batch itself."""
    _check_devices(target_gpus)
    return (inputs,)


def gather(outputs: Any, target_device: object, dim: int = 0) -> Any:
    """The results of several devices as one."""
    first = outputs[0]
    if first is None:
        return None
    if isinstance(first, dict):
        return {key: gather([out[key] for out in outputs], target_device, dim) for key in first}
    if isinstance(first, list | tuple):
        columns = zip(*outputs, strict=True)
        return type(first)(gather(list(column), target_device, dim) for column in columns)
    return cat([o.unsqueeze(0) if o.ndim == 0 else o for o in outputs], dim)


def replicate(network: M, devices: Sequence[object], detach: bool = False) -> list[M]:
    """A module for each device; with one device it is the module itself."""
    _check_devices(devices)
    return [network for _ in devices]


def parallel_apply(
    modules: Sequence[Module], inputs: Sequence[object],
    kwargs_tup: Sequence[dict[str, object]] | None = None, devices: Sequence[object] | None = None,
) -> Leaves:  # fmt: skip
    """Call each module with its own input."""
    options = kwargs_tup if kwargs_tup is not None else [{}] * len(modules)
    return [
        module(*(given if isinstance(given, list | tuple) else (given,)), **kwargs)
        for module, given, kwargs in zip(modules, inputs, options, strict=True)
    ]


def _check_devices(devices: Sequence[object]) -> None:
    if len(devices) > 1:
        raise RuntimeError(
            f"{len(devices)} devices were given, but evergrad computes on one: the CPU"
        )
