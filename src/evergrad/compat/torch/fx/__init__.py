"""Programs as graphs of calls: symbolic tracing of modules, graphs to edit, interpreters.

Functions read from ``torch`` under ``evergrad.as_torch`` are recorded; so are operators, methods
and modules. ``evergrad.compile`` does not use this: it traces ops, not calls.
"""

from .codegen import CodeGen
from .graph import Graph
from .graph_module import GraphModule
from .interpreter import Interpreter, Transformer
from .node import Node, has_side_effect, map_arg
from .proxy import Proxy, TraceError
from .subgraph_rewriter import replace_pattern
from .symbolic_trace import PH, Tracer, symbolic_trace, wrap

__all__ = [
    "PH", "CodeGen", "Graph", "GraphModule", "Interpreter", "Node", "Proxy", "TraceError",
    "Tracer", "Transformer", "has_side_effect", "map_arg", "replace_pattern", "symbolic_trace",
    "wrap",
]  # fmt: skip
