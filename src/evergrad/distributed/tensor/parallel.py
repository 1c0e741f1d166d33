"""Tensor parallel layers: products, embeddings and attention divided among processes.

All processes of the group get the same inputs and compute the same loss, which counts once. A
column-parallel layer has some of the output features; a row-parallel one some of the input
features, and sums its result over the group. Between the two nothing is communicated.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import evergrad
from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.distributed.process_group import ProcessGroup, checked_group
from evergrad.distributed.traced import apply
from evergrad.nn import functional as F
from evergrad.nn.embedding import Embedding
from evergrad.nn.linear import Linear
from evergrad.nn.module import Module
from evergrad.nn.parameter import Parameter
from evergrad.ops.rows.collective import PARALLEL_COPY, PARALLEL_REDUCE


def _own(tensor: Tensor, group: ProcessGroup, dim: int, what: str) -> Parameter:
    """This process's part of a parameter."""
    count = tensor.shape[dim]
    if count % group.size():
        raise ValueError(f"{what} ({count}) does not divide by {group.size()} processes")
    part = count // group.size()
    with using(grad=False):
        rows = tensor.detach().narrow(dim, group.rank() * part, part).clone()
    return Parameter(rows, requires_grad=tensor.requires_grad)


class ColumnParallelLinear(Module):
    """A linear layer with some of the output features; ``gather_output`` gives all of them."""

    def __init__(self, linear: Linear, group: ProcessGroup, gather_output: bool = False) -> None:
        super().__init__()
        self.group = group
        self.gather_output = gather_output
        self.weight: Parameter = _own(linear.weight, group, 0, "the number of output features")
        self.bias: Parameter | None = None
        if linear.bias is not None:
            self.bias = _own(linear.bias, group, 0, "the number of output features")

    def forward(self, input: Tensor) -> Tensor:
        result = F.linear(apply(PARALLEL_COPY, input, self.group), self.weight, self.bias)
        return gather_last(result, self.group) if self.gather_output else result


class RowParallelLinear(Module):
    """A linear layer with some of the input features, which it is given; the bias is added once."""

    def __init__(self, linear: Linear, group: ProcessGroup, split_input: bool = False) -> None:
        super().__init__()
        self.group = group
        self.split_input = split_input
        self.weight: Parameter = _own(linear.weight, group, 1, "the number of input features")
        self.bias: Parameter = linear.bias

    def forward(self, input: Tensor) -> Tensor:
        if self.split_input:
            width = self.weight.shape[1]
            shared = apply(PARALLEL_COPY, input, self.group)
            input = shared.narrow(-1, self.group.rank() * width, width)
        result = apply(PARALLEL_REDUCE, F.linear(input, self.weight), self.group)
        return result if self.bias is None else result + self.bias


class VocabParallelEmbedding(Module):
    """An embedding with some of the rows. ``weight`` is the whole table, for tied scores."""

    def __init__(self, embedding: Embedding, group: ProcessGroup) -> None:
        super().__init__()
        self.group = group
        self.part: Parameter = _own(embedding.weight, group, 0, "the number of rows")

    @property
    def weight(self) -> Tensor:
        return gather_last(self.part.t(), self.group).t()

    def forward(self, input: Tensor) -> Tensor:
        rows = self.part.shape[0]
        local = input - self.group.rank() * rows
        is_own = (local >= 0) & (local < rows)
        found = F.embedding(evergrad.where(is_own, local, 0), self.part)
        own = found * is_own.unsqueeze(-1).to(found.dtype)
        return apply(PARALLEL_REDUCE, own, self.group)


def gather_last(tensor: Tensor, group: ProcessGroup) -> Tensor:
    """The last dimensions of all processes end to end, on all of them: each adds its part to zeros
    of the others. The cotangent that all have in common is cut to the own part."""
    width, rank = tensor.shape[-1], group.rank()
    padded = F.pad(tensor, (rank * width, (group.size() - 1 - rank) * width))
    return apply(PARALLEL_REDUCE, padded, group)


# -- plans --------------------------------------------------------------------------------------


class ParallelStyle:
    """How :func:`parallelize_module` divides a layer."""

    def divide(self, layer: Module, group: ProcessGroup) -> Module:
        raise NotImplementedError


class ColwiseParallel(ParallelStyle):
    """Divide a Linear by its outputs; ``gather_output`` for all outputs on every process. An
    Embedding is divided by its rows."""

    def __init__(self, *, gather_output: bool = False, **layouts: object) -> None:
        self.gather_output = gather_output

    def divide(self, layer: Module, group: ProcessGroup) -> Module:
        if isinstance(layer, Embedding):
            return VocabParallelEmbedding(layer, group)
        if not isinstance(layer, Linear):
            raise NotImplementedError(f"{type(layer).__name__} has no tensor parallel form")
        return ColumnParallelLinear(layer, group, self.gather_output)


class RowwiseParallel(ParallelStyle):
    """Divide a Linear by its inputs, or an Embedding by its rows."""

    def __init__(self, *, split_input: bool = False, **layouts: object) -> None:
        self.split_input = split_input

    def divide(self, layer: Module, group: ProcessGroup) -> Module:
        if isinstance(layer, Embedding):
            return VocabParallelEmbedding(layer, group)
        if not isinstance(layer, Linear):
            raise NotImplementedError(f"{type(layer).__name__} has no tensor parallel form")
        return RowParallelLinear(layer, group, self.split_input)


def parallelize_module(
    module: Module, device_mesh: object = None, parallelize_plan: Any = None
) -> Module:
    """Divide layers by a plan: ``{"ff.widen": ColwiseParallel(), "ff.out": RowwiseParallel()}``, or
    one style for the module itself. ``device_mesh`` is a mesh of one dimension, or a group."""
    group = device_mesh.get_group() if hasattr(device_mesh, "get_group") else device_mesh
    found = checked_group(group)
    if isinstance(parallelize_plan, ParallelStyle):
        return parallelize_plan.divide(module, found)
    for path, style in parallelize_plan.items():
        place, _, name = path.rpartition(".")
        parent = module.get_submodule(place)
        parent.add_module(name, style.divide(parent.get_submodule(name), found))
    return module


def parallelize_gpt(model: Module, device_mesh: object = None) -> Module:
    """Divide the attention heads, feed-forward layers and token embedding of a GPT."""
    group = device_mesh.get_group() if hasattr(device_mesh, "get_group") else device_mesh
    found = checked_group(group)
    for block in model.blocks:
        _divide_attention(block.attention, found)
        ff = block.feed_forward
        plan: dict[str, ParallelStyle] = {"widen": ColwiseParallel(), "out": RowwiseParallel()}
        if ff.gate is not None:
            plan["gate"] = ColwiseParallel()
        parallelize_module(ff, found, plan)
    model.add_module("tokens", VocabParallelEmbedding(model.tokens, found))
    return model


def _divide_attention(attention: Module, group: ProcessGroup) -> None:
    """Each process has some heads, with their keys and values."""
    config, size = attention.config, group.size()
    if config.heads % size or config.shared_heads % size:
        raise ValueError(
            f"{config.heads} heads and {config.shared_heads} heads of keys do not divide by {size} "
            "processes"
        )
    counts = (config.heads, config.shared_heads, config.shared_heads)
    qkv = attention.qkv
    with using(grad=False):
        for name in ("weight", "bias"):
            whole = getattr(qkv, name)
            if whole is None:
                continue
            parts = whole.detach().split([n * config.head_size for n in counts])
            own = [part.chunk(size)[group.rank()] for part in parts]
            setattr(qkv, name, Parameter(evergrad.cat(own)))
    attention.add_module("qkv", _Shared(qkv, group))
    attention.add_module("out", RowParallelLinear(attention.out, group))
    attention.config = dataclasses.replace(
        config, heads=config.heads // size, kv_heads=config.shared_heads // size,
        width=config.width // size,
    )  # fmt: skip


class _Shared(Module):
    """A layer with own outputs of an input that all processes have."""

    def __init__(self, layer: Module, group: ProcessGroup) -> None:
        super().__init__()
        self.layer = layer
        self.group = group

    def forward(self, input: Tensor) -> object:
        return self.layer(apply(PARALLEL_COPY, input, self.group))


__all__ = [
    "ColumnParallelLinear", "ColwiseParallel", "ParallelStyle", "RowParallelLinear",
    "RowwiseParallel", "VocabParallelEmbedding", "gather_last", "parallelize_gpt",
    "parallelize_module",
]  # fmt: skip
