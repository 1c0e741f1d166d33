"""``fully_shard``: parameters, gradients and optimizer state divided among processes (ZeRO 3).

Each process has a part of the rows of every parameter. Before a module's forward pass its
parameters are gathered by a differentiable ``all_gather``, and freed after it; what backward keeps
of them is a note of which part of which parameter it was, so they are gathered once more when it
is read. The transpose of the gather, a ``reduce_scatter``, gives each process the gradient of its
part.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import evergrad
from evergrad.autograd.graph import saved_tensors_hooks
from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.distributed.buckets import listed
from evergrad.distributed.collectives import all_gather_into_tensor
from evergrad.distributed.process_group import ProcessGroup, checked_group
from evergrad.distributed.traced import apply
from evergrad.nn.module import Module
from evergrad.nn.parameter import Parameter
from evergrad.ops.rows.collective import ALL_GATHER


class ShardedParameter(Parameter):
    """This process's rows of a parameter that has ``whole_shape``, divided among ``group``."""

    whole_shape: tuple[int, ...]
    group: ProcessGroup


class _Sharded(NamedTuple):
    """A parameter: the modules that have it with their names for it (several if it is shared), its
    whole shape, and the rows of a part."""

    owners: list[tuple[Module, str]]
    shape: tuple[int, ...]
    rows: int

    @property
    def part_size(self) -> int:
        return self.rows * int(np.prod(self.shape[1:], dtype=np.int64))


class _Kept(NamedTuple):
    """What backward keeps of a gathered parameter: a window of its memory."""

    number: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


class _Unit:
    """The parameters of one call of :func:`fully_shard`, gathered together."""

    def __init__(self, module: Module, group: Any) -> None:
        self.module = module
        self.group = group
        self.entries: list[_Sharded] = []
        self.parts: list[ShardedParameter] = []
        self.whole: list[Tensor] = []  # while they are gathered
        self.again: list[Tensor] = []  # gathered for backward
        self.kept = 0  # windows of parameters that backward has yet to read
        owners: dict[Tensor, list[tuple[Module, str]]] = {}
        for owner in module.modules():
            for name, parameter in owner._parameters.items():
                if parameter is not None and not isinstance(parameter, ShardedParameter):
                    owners.setdefault(parameter, []).append((owner, name))
        for whole, places in owners.items():
            self._divide(places, whole)
        names = [places[0][1] for places in owners.values()]
        self.label = f"{type(module).__name__} ({listed(names)})"
        kinds = dict.fromkeys(part.dtype for part in self.parts)
        # The numbers of the parameters of each dtype, which are gathered in one message.
        self.messages = [
            [i for i, part in enumerate(self.parts) if part.dtype is kind] for kind in kinds
        ]

    def _divide(self, owners: list[tuple[Module, str]], parameter: Tensor) -> None:
        if getattr(parameter, "is_divided", False):
            raise ValueError(
                f"{owners[0][1]} of {type(owners[0][0]).__name__} is shared with a module that is "
                "sharded already: call fully_shard once on a module that contains both"
            )
        parameter.is_divided = True  # type: ignore[attr-defined]
        shape = tuple(parameter.shape) or (1,)
        size, rank = self.group.size(), self.group.rank()
        entry = _Sharded(owners, shape, -(-shape[0] // size))
        with using(grad=False):
            rows = parameter.detach().reshape(shape)
            missing = entry.rows * size - shape[0]
            padded = evergrad.cat([rows, evergrad.zeros((missing, *shape[1:]), dtype=rows.dtype)])
            part = padded[rank * entry.rows : (rank + 1) * entry.rows].clone()
        made = ShardedParameter(part, requires_grad=parameter.requires_grad)
        made.whole_shape, made.group = tuple(parameter.shape), self.group
        for owner, name in owners:
            owner._parameters[name] = made
        self.entries.append(entry)
        self.parts.append(made)

    # -- forward ------------------------------------------------------------------------------

    def gather(self) -> None:
        """Put whole parameters into the modules."""
        self.again = []  # left by a backward pass that did not reach all of them
        self.whole = self._gathered()
        for entry, tensor in zip(self.entries, self.whole, strict=True):
            for owner, name in entry.owners:
                parameters: dict[str, Any] = owner._parameters
                parameters[name] = tensor

    def _gathered(self) -> list[Tensor]:
        """The whole parameters, which each process has a part of."""
        found: dict[int, Tensor] = {}
        for numbers in self.messages:
            flat = evergrad.cat([self.parts[i].reshape(-1) for i in numbers])
            joined = apply(ALL_GATHER, flat, self.group, label=self.label)  # (processes, all parts)
            if joined.requires_grad:
                joined.register_hook(self._finish_backward)
            start = 0
            for i in numbers:
                entry, shape = self.entries[i], self.parts[i].whole_shape
                rows = joined[:, start : start + entry.part_size].reshape(-1, *entry.shape[1:])
                found[i] = rows[: entry.shape[0]].reshape(shape).contiguous()
                start += entry.part_size
        return [found[i] for i in range(len(self.parts))]

    def release(self) -> None:
        """Put the parts back; gathered memory is freed unless it is referenced elsewhere."""
        for entry, part in zip(self.entries, self.parts, strict=True):
            for owner, name in entry.owners:
                owner._parameters[name] = part
        self.whole = []

    # -- backward -----------------------------------------------------------------------------

    def pack(self, tensor: Tensor) -> object:
        for number, whole in enumerate(self.whole):
            if tensor._storage is whole._storage:
                self.kept += 1
                return _Kept(number, tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
        return tensor

    def unpack(self, kept: Any) -> Tensor:
        if isinstance(kept, Tensor):
            return kept
        if not self.again:
            with using(grad=False):
                self.again = self._gathered()
        whole = self.again[kept.number]
        self.kept -= 1
        if self.kept <= 0:
            self.again = []
        found: Tensor = whole.as_strided(kept.shape, kept.strides, kept.offset)
        return found

    def _finish_backward(self, grad: Tensor) -> Tensor:
        """All gradients are complete: free what was gathered; sums become means."""
        self.again = []
        mean: Tensor = grad / self.group.size()
        return mean


def fully_shard(
    module: Module, *, mesh: Any = None, reshard_after_forward: bool = True, **options: object
) -> Module:
    """Divide the parameters of a module (those not divided yet) among the processes.

    Call it on inner modules first (the blocks of a transformer), then on the whole. Parameters of
    ``module.parameters()`` are parts from then on: make the optimizer afterwards. All processes
    must have the same parameters when it is called.
    """
    group = checked_group(None if mesh is None else mesh.get_group())
    unit = _Unit(module, group)
    forward = module.forward

    def gathered(*args: object, **kwargs: object) -> object:
        if not unit.parts:
            return forward(*args, **kwargs)
        unit.gather()
        try:
            if not reshard_after_forward:
                return forward(*args, **kwargs)
            with saved_tensors_hooks(unit.pack, unit.unpack):
                return forward(*args, **kwargs)
        finally:
            unit.release()

    module.forward = gathered  # type: ignore[method-assign]
    module._fsdp_unit = unit
    return module


def full_state_dict(module: Module) -> dict[str, Tensor]:
    """The whole parameters and buffers, on every process."""
    named = module.named_parameters(remove_duplicate=False)
    parts = {name: p for name, p in named if isinstance(p, ShardedParameter)}
    found: dict[str, Tensor] = {}
    for name, value in module.state_dict().items():
        if name not in parts:
            found[name] = value
            continue
        shape = parts[name].whole_shape
        group = parts[name].group
        joined = evergrad.empty(group.size() * value.shape[0], *value.shape[1:], dtype=value.dtype)
        all_gather_into_tensor(joined, value.detach(), group)
        rows = (shape or (1,))[0]
        found[name] = joined[:rows].reshape(shape).clone()
    return found


__all__ = ["full_state_dict", "fully_shard"]
