"""Optimizations for inference: batch norms folded into convolutions, dropout taken out."""

from __future__ import annotations

import copy

from evergrad.nn import BatchNorm1d, BatchNorm2d, BatchNorm3d, Conv1d, Conv2d, Conv3d, Dropout
from evergrad.nn.module import Module
from evergrad.nn.utils.fusion import fuse_conv_bn_eval

from ..graph_module import GraphModule, _place
from ..node import Node
from ..symbolic_trace import symbolic_trace

_PAIRS = ((Conv1d, BatchNorm1d), (Conv2d, BatchNorm2d), (Conv3d, BatchNorm3d))


def _is_pair(first: Node, second: Node, modules: dict[str, Module]) -> bool:
    return (
        isinstance(first, Node)
        and first.op == second.op == "call_module"
        and len(first.users) == 1
        and any(
            type(modules[first.target]) is conv and type(modules[second.target]) is norm
            for conv, norm in _PAIRS
        )
    )


def fuse(model: Module, inplace: bool = False, no_trace: bool = False) -> Module:
    """The model with each batch norm behind a convolution folded into its weights."""
    model = model if inplace else copy.deepcopy(model)
    traced = model if no_trace and isinstance(model, GraphModule) else symbolic_trace(model)
    assert isinstance(traced, GraphModule)
    modules = dict(traced.named_modules())
    for node in traced.graph.nodes:
        first = node.args[0] if node.args else None
        if not isinstance(first, Node) or not _is_pair(first, node, modules):
            continue
        norm = modules[node.target]
        if not norm.track_running_stats:
            continue
        fused = fuse_conv_bn_eval(modules[first.target], norm)
        owner, name = _place(traced, str(first.target))
        setattr(owner, name, fused)
        modules[first.target] = fused
        node.replace_all_uses_with(first)
        traced.graph.erase_node(node)
    return GraphModule(traced, traced.graph)


def remove_dropout(model: Module) -> Module:
    """The model without its dropout layers."""
    traced = symbolic_trace(model)
    modules = dict(traced.named_modules())
    for node in traced.graph.nodes:
        if node.op == "call_module" and isinstance(modules[node.target], Dropout):
            node.replace_all_uses_with(node.args[0])
            traced.graph.erase_node(node)
    return GraphModule(traced, traced.graph)
