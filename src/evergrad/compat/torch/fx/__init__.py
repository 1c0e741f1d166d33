"""Programs as graphs of calls: symbolic tracing of modules, graphs to edit, interpreters.

Functions read from ``torch`` under ``evergrad.as_torch`` are recorded; so are operators, methods
and modules. ``evergrad.compile`` does not use this: it traces ops, not calls.
"""

from .graph_module import GraphModule
from .interpreter import Interpreter, Transformer
from .node import Graph, Node, map_arg
from .proxy import Proxy, TraceError
from .symbolic_trace import Tracer, symbolic_trace, wrap

CodeGen = object
has_side_effect = wrap

__all__ = [
    "Graph", "GraphModule", "Interpreter", "Node", "Proxy", "TraceError", "Tracer", "Transformer",
    "map_arg", "symbolic_trace", "wrap",
]  # fmt: skip
