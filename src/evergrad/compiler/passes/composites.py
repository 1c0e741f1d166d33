"""Composites become kernels or elementary equations.

:func:`lower_composites` inlines the inner graph of each composite, except those that have kernels
of their own and are left to :func:`.attention.match.recognise_attention`. In the copied graph equal
equations are one: what a derivative computes again of a forward pass is that pass itself.
"""

from __future__ import annotations

from evergrad.compiler.passes.attention.composites import composites
from evergrad.compiler.passes.attention.patterns import Facts
from evergrad.compiler.passes.rewriter import rewrite
from evergrad.core.trace import Graph


def lower_composites(graph: Graph) -> Graph:
    """The graph without composites but those that the attention kernels take."""
    if all(eqn.inner is None for eqn in graph.equations):
        return graph
    taken = [id for attention in composites(Facts(graph)) for id in attention.gone]
    return rewrite(graph.inlined(frozenset(taken)), lambda trace, eqn, args, env: None)
