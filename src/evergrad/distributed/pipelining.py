"""Pipeline parallelism: stages of a Sequential on different processes, micro-batches in turn.

In the 1F1B schedule a stage does as many forward passes as there are stages behind it, then one
forward and one backward pass in turn, then the backward passes that are left. So it keeps the
activations of at most as many micro-batches as there are stages from it on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import evergrad
from evergrad.core.tensor import Tensor
from evergrad.distributed.point_to_point import irecv, isend
from evergrad.distributed.process_group import checked_group
from evergrad.distributed.work import Work
from evergrad.nn.containers import Sequential
from evergrad.nn.module import Module

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction
    from evergrad.distributed.process_group import ProcessGroup

_DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32")
_MOST_DIMS = 8
# Tags: the type of an activation, the activation, its gradient.
_TYPE, _VALUE, _GRADIENT = 0, 1, 2


def split_sequential(module: Sequential, num_stages: int) -> list[Sequential]:
    """The layers in stages of about equal numbers of parameters, each with one layer at least."""
    layers = list(module)
    if len(layers) < num_stages:
        raise ValueError(f"{len(layers)} layers cannot make {num_stages} stages")
    sizes = [sum(p.numel() for p in layer.parameters()) + 1 for layer in layers]
    stages: list[list[Module]] = [[] for _ in range(num_stages)]
    stage, held, total = 0, 0.0, sum(sizes)
    for number, (layer, size) in enumerate(zip(layers, sizes, strict=True)):
        behind = num_stages - 1 - stage
        is_full = stages[stage] and held + size / 2 > total * (stage + 1) / num_stages
        if stages[stage] and behind and (is_full or len(layers) - number <= behind):
            stage += 1
        stages[stage].append(layer)
        held += size
    return [Sequential(*stage) for stage in stages]


class PipelineStage:
    """The part of a model that this process computes."""

    def __init__(
        self, submodule: Module, stage_index: int, num_stages: int, device: object = None,
        input_args: object = None, output_args: object = None, group: object = None,
    ) -> None:  # fmt: skip
        self.submod = submodule
        self.stage_index = stage_index
        self.num_stages = num_stages
        self.group: ProcessGroup = checked_group(group)
        if self.group.size() != num_stages or self.group.rank() != stage_index:
            raise ValueError(
                f"stage {stage_index} of {num_stages} belongs on process {stage_index} of a group "
                f"of {num_stages}, not on {self.group.rank()} of {self.group.size()}"
            )
        self.is_first: bool = stage_index == 0
        self.is_last: bool = stage_index == num_stages - 1
        self._sent: list[Work] = []

    # -- messages -------------------------------------------------------------------------------

    def _send(self, tensor: Tensor, peer: int, tag: int) -> None:
        self._sent = [work for work in self._sent if not work.is_completed()]
        self._sent.append(isend(tensor, group=self.group, group_dst=peer, tag=tag))

    def _receive(self, like: Tensor, peer: int, tag: int) -> Tensor:
        irecv(like, group=self.group, group_src=peer, tag=tag).wait()
        return like

    def receive_input(self) -> Tensor:
        """The output of the stage before, as a leaf whose gradient is sent back."""
        peer = self.stage_index - 1
        words = self._receive(evergrad.zeros(2 + _MOST_DIMS, dtype=evergrad.int64), peer, _TYPE)
        kind, rank, *shape = words.tolist()
        dtype = getattr(evergrad, _DTYPES[kind])
        found = self._receive(evergrad.zeros(shape[:rank], dtype=dtype), peer, _VALUE)
        return found.requires_grad_() if dtype.is_floating_point else found

    def send_output(self, output: Tensor) -> None:
        if not isinstance(output, Tensor) or output.ndim > _MOST_DIMS:
            raise TypeError("a stage gives one tensor, of at most 8 dimensions, to the next")
        peer = self.stage_index + 1
        shape = [*output.shape, *[0] * (_MOST_DIMS - output.ndim)]
        kind = _DTYPES.index(output.dtype.name)
        words = evergrad.tensor([kind, output.ndim, *shape], dtype=evergrad.int64)
        self._send(words, peer, _TYPE)
        self._send(output.detach(), peer, _VALUE)

    def finish(self) -> None:
        """Wait until everything is sent."""
        for work in self._sent:
            work.wait()
        self._sent = []


class _Schedule:
    """A step over micro-batches. ``loss_fn(output, target)`` is the mean over a micro-batch."""

    def __init__(
        self, stage: PipelineStage, n_microbatches: int, loss_fn: AnyFunction | None = None,
        scale_grads: bool = True, **options: object,
    ) -> None:  # fmt: skip
        self.stage = stage
        self.n_microbatches = n_microbatches
        self.loss_fn = loss_fn
        self.scale = 1.0 / n_microbatches if scale_grads else 1.0
        self.most_kept = 0  # micro-batches whose activations were kept at once

    def order(self) -> Iterator[str]:
        """Forward ("F") and backward ("B") passes of this stage."""
        raise NotImplementedError

    def step(
        self, *args: object, target: object = None, losses: list[Any] | None = None
    ) -> Tensor | None:
        """One step: the first stage is given the inputs, the last the target; gradients accumulate.
        Gives the outputs on the last stage."""
        stage, count = self.stage, self.n_microbatches
        inputs = _cut(args[0], count) if stage.is_first else [None] * count
        targets = _cut(target, count) if stage.is_last and target is not None else [None] * count
        kept: deque[tuple[Any, Any]] = deque()
        outputs: list[Tensor] = []
        forward = iter(zip(inputs, targets, strict=True))
        for kind in self.order():
            if kind == "F":
                given, wanted = next(forward)
                kept.append(self._forward(given, wanted, outputs, losses))
                self.most_kept = max(self.most_kept, len(kept))
            else:
                self._backward(*kept.popleft())
        stage.finish()
        return evergrad.cat(outputs) if stage.is_last and outputs else None

    def _forward(
        self, given: Tensor | None, wanted: Tensor | None, outputs: list[Tensor], losses: Any
    ) -> tuple[object, object]:
        stage = self.stage
        x = given if stage.is_first else stage.receive_input()
        y = stage.submod(x)
        if not stage.is_last:
            stage.send_output(y)
            return x, y
        outputs.append(y.detach())
        if self.loss_fn is None:
            return x, y
        loss = self.loss_fn(y, wanted)
        if losses is not None:
            losses.append(loss.detach())
        return x, loss * self.scale

    def _backward(self, x: Any, y: Tensor) -> None:
        stage = self.stage
        if stage.is_last:
            y.backward()
        else:
            empty = evergrad.zeros(y.shape, dtype=y.dtype)
            y.backward(stage._receive(empty, stage.stage_index + 1, _GRADIENT))
        if not stage.is_first:
            stage._send(x.grad, stage.stage_index - 1, _GRADIENT)


class Schedule1F1B(_Schedule):
    """One forward and one backward pass in turn."""

    def order(self) -> Iterator[str]:
        warm = min(self.stage.num_stages - 1 - self.stage.stage_index, self.n_microbatches)
        yield from "F" * warm
        for _ in range(self.n_microbatches - warm):
            yield from "FB"
        yield from "B" * warm


class ScheduleGPipe(_Schedule):
    """All forward passes, then all backward passes."""

    def order(self) -> Iterator[str]:
        yield from "F" * self.n_microbatches + "B" * self.n_microbatches


def _cut(batch: Any, count: int) -> list[Tensor]:
    if batch.shape[0] % count:
        raise ValueError(f"a batch of {batch.shape[0]} does not divide into {count} micro-batches")
    return list(batch.chunk(count))


__all__ = ["PipelineStage", "Schedule1F1B", "ScheduleGPipe", "split_sequential"]
